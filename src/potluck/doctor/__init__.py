"""The doctor: everything that would keep this machine from taking part in a swarm.

Each check returns a finding about plain values that ``examine`` has read. No torch is imported.
"""
