"""The page: a run or an experiment in a browser. It reads; nothing there acts on a run.

a run's folder, cells --feed--> views --JSON, server-sent events--> page/
"""
