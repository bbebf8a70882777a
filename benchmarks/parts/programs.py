"""Steps on JAX as the compilers of accelerators make them, where there is none.

`libtpu` and JAX's CUDA plugin compile for devices that they are only told of: `devices`
makes such devices, `training_program` compiles a step for them, and `Program` reads
what the compiler made. Set `os.environ` to ENVIRONMENT before JAX is imported.
"""

import collections
import functools
import importlib.metadata
import itertools
import math
import pathlib
import re
from typing import Any, NamedTuple

ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    # Else libtpu asks Google Cloud which TPU there is, and is one process's at a time.
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}
_PACKAGES = (
    "libtpu",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "nvidia-cuda-nvcc-cu12",
)
# Kind -> the file that tells XLA about the device.
_GPUS = {
    kind: pathlib.Path(__file__).with_name(f"{kind}.txtpb") for kind in ("a100", "h100")
}
# Hertz, by kind: the makers' peak over the FLOPs of the matrix units in a cycle.
CLOCKS = {"v5e": 1.5e9, "v5p": 1.75e9, "v6e": 1.75e9}
# Bytes of a device's memory, by kind.
MEMORY = {"v5e": 16 << 30, "v5p": 95 << 30, "v6e": 32 << 30} | dict.fromkeys(
    _GPUS, 80 << 30
)

_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
_BITS = {"pred": 8}


def missing_packages() -> list[str]:
    """The compilers that are not installed here."""
    here = {one.name for one in importlib.metadata.distributions()}
    return [name for name in _PACKAGES if name not in here]


@functools.cache
def devices(name: str) -> list[Any]:
    """Abstract devices: "v5e:2x2", a TPU's chips, or "h100:8", GPUs of a machine."""
    import jax
    from jax.experimental import topologies

    jax.devices()  # the plugins are found
    kind, shape = name.split(":")
    if kind in _GPUS:
        facts = {"target_config": _GPUS[kind].read_text(), "topology": f"1x{shape}x1"}
        return topologies.get_topology_desc("", "cuda", **facts).devices
    options = {}
    if math.prod(map(int, shape.split("x"))) == 1:
        options = {"chips_per_host_bounds": (1, 1, 1)}
    return topologies.get_topology_desc(name, "tpu", **options).devices


class Collective(NamedTuple):
    """One exchange between devices."""

    kind: str
    num_bytes: int  # of its larger side, of one device
    in_loop: bool  # it runs more than once in a step
    source: str  # the operation of the step that it is made of


class Program:
    """What a compiler made of a step, for each device."""

    def __init__(self, compiled: Any) -> None:
        self.text = compiled.as_text()
        self.memory = compiled.memory_analysis()
        # XLA's own count for TPUs; its compiler for GPUs has none.
        self.cost = compiled.cost_analysis() or {}
        self._computations = _computations(self.text)

    @property
    def memory_bytes(self) -> int:
        """The most memory that the step needs, its arguments among it; without code."""
        sizes = self.memory
        return (
            sizes.argument_size_in_bytes
            + sizes.output_size_in_bytes
            - sizes.alias_size_in_bytes
            + sizes.temp_size_in_bytes
        )

    @functools.cached_property
    def cycles(self) -> float:
        """The sum of all instructions' estimated cycles; 0 for GPUs."""
        return sum(
            times * int(found)
            for times, line in self._instructions()
            for found in re.findall(r'"estimated_cycles":"(\d+)"', line)
        )

    def count(self, *opcodes: str) -> int:
        """How many instructions of the program are of these kinds, in fusions too."""
        return len(re.findall(rf" (?:{'|'.join(opcodes)})\(", self.text))

    @functools.cached_property
    def collectives(self) -> list[Collective]:
        """The exchanges between devices."""
        found: dict[Any, Collective] = {}
        loops = re.findall(r" while\(.*?body=(%?[\w.-]+)", self.text)
        in_loops = _reachable(self._computations, loops)
        definition = re.compile(r"^ *(?:ROOT )?(%\S+) = (.*?) [a-z-]+\(")
        every = itertools.chain.from_iterable(self._computations.values())
        shapes = dict(one.groups() for one in map(definition.match, every) if one)
        pattern = rf" = (.*?) ({'|'.join(_COLLECTIVES)})(?:-start)?\((.*?)\)"
        for computation, lines in self._computations.items():
            for line in lines:
                match = re.search(pattern, line)
                if match is None:
                    continue
                result, kind, operands = match.groups()
                names = re.findall(r"%[^\s,)]+", operands)
                sent = sum(_num_bytes(shapes.get(name, "")) for name in names)
                # What TPUs make of a reduce-scatter.
                if "all-reduce-scatter" in computation:
                    kind = "reduce-scatter"
                channel = re.search(r"channel_id=(\d+)", line)
                source = re.search(r'op_name="([^"]*)"', line)
                size = max(_num_bytes(result), sent)
                # One exchange may be spread over several fusions.
                key = (kind, size, channel.group(1)) if channel else line
                found[key] = Collective(
                    kind,
                    size,
                    computation in in_loops,
                    source.group(1) if source else "",
                )
        return list(found.values())

    def collective_bytes(self) -> dict[str, int]:
        """Kind -> bytes."""
        totals: collections.Counter[str] = collections.Counter()
        for one in self.collectives:
            totals[one.kind] += one.num_bytes
        return dict(totals)

    def host_callbacks(self) -> list[str]:
        """What would call Python or the host in the midst of a step."""
        calls = r'custom_call_target="([^"]*(?:callback|host)[^"]*)"'
        transfers = r" (infeed|outfeed|send|recv)\("
        found = re.findall(f"{calls}|{transfers}", self.text, re.IGNORECASE)
        return ["".join(one) for one in found]

    def _instructions(self) -> list[tuple[int, str]]:
        """The lines of the program that are no part of an instruction, how often."""
        todo = [(1, next(x for x in self._computations if x.startswith("ENTRY")))]
        found = []
        while todo:
            times, name = todo.pop()
            for line in self._computations.get(name, ()):
                found.append((times, line))
                if re.search(r" (?:while|call|conditional)\(", line):
                    count = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
                    often = times * int(count.group(1)) if count else times
                    todo += [(often, called) for called in _called(line)]
        return found


def _computations(text: str) -> dict[str, list[str]]:
    """The instructions of each computation."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        start = re.match(r"(ENTRY )?(%?[\w.-]+) \(.*\{$", line)
        if start:
            lines = found[(start.group(1) or "") + start.group(2)] = []
        elif line.startswith(" "):
            lines.append(line)
    return found


def _called(line: str) -> list[str]:
    return re.findall(
        r"(?:body|condition|to_apply|calls|_computation)=(%?[\w.-]+)", line
    )


def _reachable(computations: dict[str, list[str]], start: list[str]) -> set[str]:
    seen, todo = set(), list(start)
    while todo:
        name = todo.pop()
        if name not in seen and name in computations:
            seen.add(name)
            todo += [called for line in computations[name] for called in _called(line)]
    return seen


def _num_bytes(shape: str) -> int:
    """Of a shape such as "(bf16[8,128]{1,0}, f32[])"."""
    total = 0
    for kind, sizes in re.findall(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]", shape):
        bits = _BITS.get(kind) or int(re.findall(r"\d+", kind)[0])
        total += bits * math.prod(int(size) for size in sizes.split(",") if size) // 8
    return total


def compiled(jitted: Any, strategy: Any, *arguments: Any, **options: Any) -> Program:
    """A jitted function's program, for arguments as `abstract` makes them."""
    if strategy.device_kind == "GPU":
        import nvidia.cuda_nvcc

        # Without a GPU no kernel can be timed.
        options["xla_gpu_autotune_level"] = 0
        options["xla_gpu_cuda_data_dir"] = nvidia.cuda_nvcc.__path__[0]
    return Program(jitted.lower(*arguments).compile(compiler_options=options))


def abstract(values: Any, sharding: Any) -> Any:
    """Arrays, or variables of Keras, as shapes with a place on the devices."""
    import jax

    def one(value: Any) -> Any:
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)

    return jax.tree.map(one, values)


def training_program(
    task: Any,
    strategy: Any,
    batch: dict[str, Any],
    *,
    precision: str = "bfloat16",
    optimizer: str = "adamw",
    accumulation_steps: int = 1,
    **options: Any,
) -> Program:
    """A training step of a task on a strategy's devices; the batch is all devices'."""
    import dataclasses

    import jax
    import numpy as np

    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.training import jax_step, step
    from bert_tf.training.strategy import check_batch_size

    rows = len(next(iter(batch.values())))
    check_batch_size(strategy, rows, accumulation_steps)
    with step.computing_in(precision):
        model = task.build_model()
        if task.in_training:
            model = task.in_training(model)
            task = dataclasses.replace(task, objective=model.objective)
        rule = create_optimizer(
            1e-4, 10**6, 10**4, optimizer=optimizer, global_clipnorm=None
        )
        rule.build(model.trainable_variables)
        scale = step.LossScale() if precision == "float16" else None
    names = step.names_of_sums(task.objective, scale)
    totals = {name: np.zeros(2, np.float32) for name in names}
    by_row, replicated, numbers = strategy.by_row, strategy.replicated, None
    if accumulation_steps > 1:
        by_row = strategy.by_row_of_part
        batch = {
            name: value.reshape(accumulation_steps, -1, *value.shape[1:])
            for name, value in batch.items()
        }
        numbers = jax.ShapeDtypeStruct(
            (accumulation_steps, rows // accumulation_steps), np.int32, sharding=by_row
        )
    weights, others, slots = jax_step.state_of(model, rule, scale)
    divided = [
        abstract(slot, share)
        for slot, share in zip(slots, strategy.shares(slots), strict=True)
    ]
    return compiled(
        jax_step.training_step(task, model, rule, strategy, scale),
        strategy,
        (*abstract((weights, others), replicated), divided),
        abstract(totals, replicated),
        abstract(batch, by_row),
        numbers,
        **options,
    )


def inference_program(
    task: Any, strategy: Any, batch: dict[str, Any], *, evaluates: bool, **options: Any
) -> Program:
    """A step of evaluation, or else of prediction, in bfloat16."""
    from bert_tf.training import jax_step, step

    with step.computing_in("bfloat16"):
        model = task.build_model()
    if evaluates:
        function = jax_step.evaluation(task, model, strategy)
    else:
        function = jax_step.prediction(model, strategy)
    parts = (model.trainable_variables, model.non_trainable_variables)
    arguments = abstract(parts, strategy.replicated)
    batch = abstract(batch, strategy.by_row)
    return compiled(function, strategy, *arguments, batch, **options)
