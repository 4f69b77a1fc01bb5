"""What would keep this machine from taking part in a swarm, and what to do about it.

    machine.py   versions, cores, memory, files, disk, congestion control
    line.py      addresses: whether this node can be reached, and reaches the others
    papers.py    key, roster, certificates, clock
    peers.py     who is there already, by a short session

Each check is a function of plain values that returns a finding; what it looks at is read in
``examine``. It imports no torch.
"""

from potluck.doctor.examine import Patient, examine
from potluck.doctor.finding import Finding, Verdict

__all__ = ["Finding", "Patient", "Verdict", "examine"]
