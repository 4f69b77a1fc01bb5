"""The process in which computer algebra runs: it may be killed at any moment, and often is.

    python -P -m potluck.tasks.math_worker CPU_LIMIT_S MEMORY_LIMIT_BYTES

First line out: "ready", or what is wrong. Then a line in, {"question", "gold", "answer"} as
JSON, and a line out, "1" or "0". It ends with its input, which is when its parent ends.

Processor time is limited and not time on the clock, so that an answer is worth the same on
a busy machine: beyond the limit the kernel's timer kills the process, no handler runs.
The answer reaches no parser of Python: math-verify's plain expressions go through sympy's
``parse_expr``, which is ``eval``, and are left out; its LaTeX has a grammar of its own.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from potluck.tasks.math_grading import same_answer

LONGEST_LINE_BYTES = 1_000_000


def main() -> None:
    out = _the_only_output()
    limit_s, limit_bytes = float(sys.argv[1]), int(sys.argv[2])
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    try:
        equal = _equality()
    except Exception as error:
        os.write(out, f"{type(error).__name__}: {error}".splitlines()[0].encode() + b"\n")
        return
    os.write(out, b"ready\n")
    while line := sys.stdin.buffer.readline(LONGEST_LINE_BYTES):
        ask = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            verdict = same_answer(ask["gold"], ask["answer"], question=ask["question"], equal=equal)
        except MemoryError:
            return  # whatever it left half done, another process will do better
        except Exception:  # what algebra raises on nonsense is not documented
            verdict = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(out, b"1\n" if verdict else b"0\n")


def _the_only_output() -> int:
    """What was standard output; libraries that print, print to nowhere."""
    out, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return out


def _equality() -> Callable[[str, str], bool]:
    """math-verify's ``verify(gold, answer)`` of two leaves, after it has run once: warm."""
    import math_verify
    from latex2sympy2_extended import NormalizationConfig
    from sympy.core.cache import clear_cache

    # Leaves are in one spelling already; taking away "units" would take letters.
    as_it_is = NormalizationConfig(basic_latex=False, boxed="none")
    latex_only = [math_verify.LatexExtractionConfig(normalization_config=as_it_is)]

    def parsed(leaf: str) -> list[object]:
        # Its own time-outs use signal.alarm; the limits above are ours.
        return list(
            math_verify.parse(
                f"${_exact(leaf)}$", latex_only, fallback_mode="no_fallback", parsing_timeout=None
            )
        )

    def equal(gold: str, answer: str) -> bool:
        verdict = math_verify.verify(parsed(gold), parsed(answer), timeout_seconds=None)
        clear_cache()  # else the memory of a long run fills up
        return bool(verdict)

    warm = equal(r"\frac { \sqrt { 3 } } { 3 } + x ^ { 2 }", r"\frac { 1 } { \sqrt { 3 } } + x x")
    if not warm:
        raise RuntimeError("math-verify does not know that 1/sqrt(3) = sqrt(3)/3")
    return equal


def _exact(leaf: str) -> str:
    """Decimals as fractions: what is a float is compared to six places only."""
    tokens = leaf.split(" ")
    for i, token in enumerate(tokens):
        whole, point, places = token.partition(".")
        if point:
            tokens[i] = rf"\frac {{ {whole + places} }} {{ {10 ** len(places)} }}"
    return " ".join(tokens)


if __name__ == "__main__":
    main()
