"""The paper's experiments, run and judged: ``potluck reproduce``, on the public interface of
``potluck`` (docs/api.md). Torch is imported by the processes that run a cell."""
