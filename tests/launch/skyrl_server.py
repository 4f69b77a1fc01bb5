"""SkyRL's Tinker server on a CPU, started by a Python that has ``skyrl[tinker,jax]``:

    python skyrl_server.py MODEL PORT FOLDER RANK ADAPTERS    the API; it starts its engine
    python skyrl_server.py engine OPTION ...                  the engine

SkyRL 0.3.0 needs two changes to run here. Its types do not import on Python 3.11 as pydantic wants
``TypedDict`` of typing_extensions, and it starts its engine by ``uv run``.
"""

import runpy
import sys
import typing
from pathlib import Path

import typing_extensions


def serve(model, port, folder, rank, adapters):
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, config_to_argv

    def command(_, config):
        return [sys.executable, __file__, "engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = command
    folder = Path(folder)
    api.app.state.engine_config = EngineConfig(
        base_model=model,
        backend="jax",
        database_url=f"sqlite:///{folder}/tinker.db",
        checkpoints_base=str(folder / "checkpoints"),
        backend_config={
            "max_lora_adapters": int(adapters),
            "max_lora_rank": int(rank),
            "train_micro_batch_size": 8,
            "sample_max_num_sequences": 16,
        },
    )
    uvicorn.run(api.app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    typing.TypedDict = typing_extensions.TypedDict
    if sys.argv[1] == "engine":
        del sys.argv[1]
        runpy.run_module("skyrl.tinker.engine", run_name="__main__", alter_sys=True)
    else:
        serve(*sys.argv[1:])
