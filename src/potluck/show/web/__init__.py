"""The page: a run, a swarm or an experiment in a browser. It reads; nothing there acts on a run.

a run's folder, a swarm, cells --feed--> views --JSON, server-sent events--> page/
"""
