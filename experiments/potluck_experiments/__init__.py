"""The paper's experiments, run and judged: ``potluck reproduce``.

It uses the public interface of ``potluck`` only (docs/api.md). Torch is imported by the
processes that run a cell.
"""
