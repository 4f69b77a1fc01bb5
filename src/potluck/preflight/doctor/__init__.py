"""The doctor: everything that would keep this machine from taking part in a swarm.

    machine.py      versions, cores, memory, files, disk, congestion control
    credentials.py  key, roster, certificates, clock
    network.py      addresses: whether this node can be reached, and which nodes it reaches

Each check returns a finding about plain values that ``examine`` has read. No torch is imported.
"""

from potluck.preflight.doctor.examine import Target, examine
from potluck.preflight.doctor.machine import Finding

__all__ = ["Finding", "Target", "examine"]
