"""One GRPO step, writing and learning, against TRL's GRPOTrainer: time and peak memory.

    trl      TRL's GRPOTrainer
    whole    ours, where learning reads a prompt again for each of its completions
    ours     as it is: a prompt that completions share is read once
    bfloat16 ours, where writing is in bfloat16 (``sampling_dtype``)

Same model, prompts, forced lengths, rewards, optimiser settings and rows per micro-batch;
float32 on all sides but for the writing of the last. Each trainer has a process of its own,
which takes one step whenever it is told to, so they take turns. Rewards are synthetic: of
every three groups one has no spread, as happens when a problem is too easy or too hard, and
teaches nothing.

Ratios are of processor seconds, which other programs on the machine change little; wall
seconds stand beside them. Memory is the resident set's high-water mark, less what was
resident when the model was loaded and all was imported.

TRL runs without its logs, checkpoints and reference model, and without gradient
checkpointing (its default, which would spare memory and cost time).

    python benchmarks/training.py [--quick]
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import harness
import torch
from harness import ForcedDraw, ForcedScores, Row, Workload

from potluck.config import NodeConfig, SamplingConfig
from potluck.model import LanguageModel, inputs, make_optimizer
from potluck.node.learning.batch import pack
from potluck.node.learning.learner import Learner
from potluck.node.selection import read
from potluck.objective.methods import METHODS, ObjectiveConfig
from potluck.rollout.base import EngineSettings, RandomSampler
from potluck.rollout.hf import HFEngine
from potluck.types import Group

GROUPS, GROUP_SIZE, MICRO_ROWS, LEARNING_RATE = 6, 8, 12, 1e-6
KINDS = ("trl", "whole", "ours", "bfloat16")
WITHOUT_TRL = "training: TRL is not installed; pip install 'potluck[bench]' brings it"


@dataclass(frozen=True, slots=True)
class Step:
    """What one training step took, in seconds."""

    wall: float
    processor: float
    learning: float
    """Processor seconds of the part behind writing; not known of TRL, whose is 0."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload, the turns that each trainer has, and what is to be reached."""

    work: Workload
    turns: int
    step_of_trl: float | None = None
    bfloat16_step_of_trl: float | None = None
    memory_of_trl: float | None = None
    learning_of_whole: float | None = None
    memory_of_whole: float | None = None


def measure(quick: bool) -> tuple[list[Row], object]:
    if find_spec("trl") is None:
        sys.exit(WITHOUT_TRL)
    rows, raw = [], {}
    for number, case in enumerate(cases(quick)):
        size = "quick" if quick else "full"
        trainers = {kind: Trainer(kind, size, str(number), str(case.turns + 1)) for kind in KINDS}
        contenders = {kind: trainer.step for kind, trainer in trainers.items()}
        harness.take_turns(contenders, case.turns, f"one step, {case.work.name}")
        steps = {kind: trainer.steps[1:] for kind, trainer in trainers.items()}
        memory_mb = {kind: trainer.end() for kind, trainer in trainers.items()}
        rows += table(case, steps, memory_mb)
        raw[case.work.name] = {
            "lengths": case.work.length_N,
            "wall_s": {kind: [step.wall for step in steps[kind]] for kind in KINDS},
            "processor_s": {kind: [step.processor for step in steps[kind]] for kind in KINDS},
            "learning_s": {kind: [step.learning for step in steps[kind]] for kind in KINDS[1:]},
            "memory_mb": memory_mb,
        }
    return rows, raw


def table(case: Case, steps: dict[str, list[Step]], memory_mb: dict[str, float]) -> list[Row]:
    def row(what: str, ours: list[float], other: list[float], at_most: float | None = None) -> Row:
        return Row(f"{case.work.title}: {what}", *harness.ratio(ours, other), at_most=at_most)

    def memory(what: str, other: str, at_most: float | None) -> Row:
        return row(what, [memory_mb["ours"]], [memory_mb[other]], at_most)

    def column(name: str) -> dict[str, list[float]]:
        return {kind: [getattr(step, name) for step in steps[kind]] for kind in KINDS}

    wall, processor, learning = column("wall"), column("processor"), column("learning")
    step = "processor time of a step, of {}"
    learn = "processor time of learning, of whole rows"
    return [
        row(step.format("TRL"), processor["ours"], processor["trl"], case.step_of_trl),
        row("wall time of a step, of TRL", wall["ours"], wall["trl"]),
        row(step.format("whole rows"), processor["ours"], processor["whole"]),
        row(
            f"{step.format('TRL')}, writing in bfloat16",
            processor["bfloat16"],
            processor["trl"],
            case.bfloat16_step_of_trl,
        ),
        row(learn, learning["ours"], learning["whole"], case.learning_of_whole),
        memory("peak memory, of TRL", "trl", case.memory_of_trl),
        memory("peak memory, of whole rows", "whole", case.memory_of_whole),
    ]


def cases(quick: bool) -> list[Case]:
    """Short prompts, the shape of GSM8K, examples in the prompt, and answers so long that a prompt
    that is read once saves nothing."""
    drawn = harness.workloads(quick, problems=GROUPS, group_size=GROUP_SIZE)
    if quick:
        return [Case(drawn[0], turns=1)]

    def work(*, prompt: int, longest: int, mean: float) -> Workload:
        return harness.workload(GROUPS, GROUP_SIZE, prompt=prompt, longest=longest, mean=mean)

    short, gsm8k = drawn
    return [
        Case(
            short,
            turns=5,
            step_of_trl=0.34,
            bfloat16_step_of_trl=0.28,
            memory_of_trl=0.60,
            learning_of_whole=0.87,
        ),
        Case(
            gsm8k,
            turns=5,
            step_of_trl=0.20,
            bfloat16_step_of_trl=0.17,
            memory_of_trl=0.45,
            learning_of_whole=0.40,
        ),
        Case(work(prompt=250, longest=40, mean=20), 5),
        Case(
            work(prompt=24, longest=512, mean=220),
            turns=3,
            learning_of_whole=1.03,
            memory_of_whole=1.03,
        ),
    ]


class Trainer:
    """A process that takes one training step for each line it reads."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, __file__, "--trainer", *arguments]
        self.steps: list[Step] = []
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (it lives as long as we do)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def step(self) -> float:
        """Take a step; return its wall seconds."""
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        self.steps.append(Step(*self._answer("seconds")))
        return self.steps[-1].wall

    def end(self) -> float:
        """Megabytes of the peak."""
        memory_mb = self._answer("memory")[0]
        self._process.communicate()
        return memory_mb

    def _answer(self, word: str) -> list[float]:
        """Whatever else the process prints is not ours."""
        for line in self._process.stdout:
            if line.startswith(f"bench {word} "):
                return [float(number) for number in line.split()[2:]]
        self._log.seek(0)
        raise RuntimeError(f"the trainer died:\n{self._log.read()[-4000:]}")


def serve(kind: str, work: Workload, steps: int) -> None:
    """The other end of ``Trainer``."""
    torch.set_num_threads(1)
    policy = harness.language_model()
    if kind == "whole":
        inputs.WORTH_SHARING = 0.0  # then it never pays to read a prompt once
    if kind == "trl":
        train = prepare_trl(policy, work)
    else:
        dtype = "bfloat16" if kind == "bfloat16" else "float32"
        train = prepare_ours(policy, work, dtype)
    before_mb = harness.forget_peak_mb()  # that of the imports
    train(steps)
    print(f"bench memory {harness.status_mb('VmHWM') - before_mb}", flush=True)


def prepare_ours(policy: LanguageModel, work: Workload, dtype: str) -> Callable[[int], None]:
    """What takes training steps of ours, which write in ``dtype`` and learn in float32."""

    def train(steps: int) -> None:
        node = NodeConfig(model="-", learning_rate=LEARNING_RATE)
        widest = max(_tokens(work, policy)) + max(work.length_N)
        learner = Learner(
            name="bench",
            policy=policy,
            optimizer=make_optimizer(policy, node.optimizer, node.adam),
            objective=ObjectiveConfig(**METHODS["f-tis"].fields),
            temperature=1.0,
            gradient_clip_norm=1.0,
            micro_batch_tokens=MICRO_ROWS * widest,
        )
        engine = HFEngine(policy, EngineSettings(max(work.length_N), 4096, dtype=dtype))
        limits = SamplingConfig(max_new_tokens=max(work.length_N), max_total_tokens=4096)
        generator, stop = torch.Generator().manual_seed(0), policy.tokenizer.eos_token_id
        for _ in range(steps):
            start = _wait_for_turn()
            sampler = ForcedDraw(RandomSampler(generator), work.length_N, stop)
            written = engine.generate(work.requests, sampler, author="bench", progress=_silent)
            groups = [
                Group(
                    request.problem,
                    tuple(
                        read(completion, request.problem, policy, limits)
                        for completion in written[i * GROUP_SIZE : (i + 1) * GROUP_SIZE]
                    ),
                    tuple(reward(i * GROUP_SIZE + j) for j in range(GROUP_SIZE)),
                )
                for i, request in enumerate(work.requests)
            ]
            before_learning = time.process_time()
            update = learner.learn(pack(groups), _silent)
            _tell_seconds(start, learning=time.process_time() - before_learning)
            assert update.updates == 1, "nothing was learned"

    return train


def prepare_trl(policy: LanguageModel, work: Workload) -> Callable[[int], None]:
    # Imported here: whoever has no TRL can still read and run the rest.
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Turns(TrainerCallback):
        def on_step_begin(self, *args: object, **kwargs: object) -> None:
            self.start = _wait_for_turn()

        def on_step_end(self, *args: object, **kwargs: object) -> None:
            _tell_seconds(self.start)

    def train(steps: int) -> None:
        _force_lengths(policy, work)
        questions = [request.problem.question for request in work.requests] * steps
        config = GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            max_steps=steps,
            per_device_train_batch_size=MICRO_ROWS,
            gradient_accumulation_steps=GROUPS * GROUP_SIZE // MICRO_ROWS,
            num_generations=GROUP_SIZE,
            max_completion_length=max(work.length_N),
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            optim="adamw_torch",
            max_grad_norm=1.0,
            beta=0.0,
            loss_type="grpo",
            temperature=1.0,
            top_k=0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            shuffle_dataset=False,
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=policy.network,
            processing_class=policy.tokenizer,
            reward_funcs=lambda completions, **_: [reward(i) for i in range(len(completions))],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": questions}),
            callbacks=[Turns()],
        )
        trainer.train()

    return train


def reward(row: int) -> float:
    """Every third group agrees on 1; in the others half of the rows earn it."""
    return 1.0 if (row // GROUP_SIZE) % 3 == 0 else float(row % 2)


def _force_lengths(policy: LanguageModel, work: Workload) -> None:
    """Makes every call of the model's ``generate`` stop where ``work`` says."""
    generate, stop = policy.network.generate, policy.tokenizer.eos_token_id

    def forced(**inputs: object) -> torch.Tensor:
        width = inputs["input_ids"].shape[1]
        out = generate(**inputs, logits_processor=[ForcedScores(work.length_N, stop, prompt=width)])
        length_N = ((out[:, width:] == stop).int().argmax(dim=1) + 1).tolist()
        assert tuple(length_N) == work.length_N, "lengths were not forced"
        return out

    policy.network.generate = forced


def _tokens(work: Workload, policy: LanguageModel) -> list[int]:
    return [len(policy.prompt(request.problem)) for request in work.requests]


@dataclass(frozen=True, slots=True)
class Start:
    """Clocks when a step began."""

    wall: float
    processor: float


def _wait_for_turn() -> Start:
    assert sys.stdin.readline() == "step\n", "whoever measures is gone"
    return Start(time.perf_counter(), time.process_time())


def _tell_seconds(start: Start, *, learning: float = 0.0) -> None:
    wall = time.perf_counter() - start.wall
    processor = time.process_time() - start.processor
    print(f"bench seconds {wall} {processor} {learning}", flush=True)


def _silent(done: int, total: int) -> None: ...


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trainer"]:
        kind, size, number, steps = sys.argv[2:]
        serve(kind, cases(size == "quick")[int(number)].work, int(steps))
    else:
        harness.run("training", measure)
