"""What torch allocates."""

import numpy as np
from torch.profiler import ProfilerActivity, profile


def asked_of_torch(do, *, at_end=False):
    """Bytes: the most that stood at once of what was allocated in ``do``; ``at_end``: what its
    result holds."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        result = do()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    del result
    stood = np.cumsum(sizes)
    return int(stood[-1] if at_end else stood.max())
