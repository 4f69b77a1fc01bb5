"""The doctor: everything that would keep this machine from taking part in a swarm.

Each check returns a finding about plain values that ``examine`` has read. No torch is imported.
"""

from potluck.preflight.doctor.examine import Target, examine
from potluck.preflight.doctor.machine import Finding

__all__ = ["Finding", "Target", "examine"]
