"""Pre-training steps of BERT on a GPU with JAX, beside transformers on PyTorch.

    python benchmarks/gpu_steps.py

Batches are generated and lie on the device; bfloat16, dropout 0.1, forward, backward,
clipping and the update of every weight. For each size and length: tokens a second, the
share of the rate of matrix products that the same back end reached just before, and
the most memory. "base's arrays" is a model of as many arrays as base with hardly any
arithmetic: its step is what all else costs, and so the most that several steps in one
call (jax.lax.scan) could save. The peer is transformers' BertForPreTraining with
torch.compile and scaled_dot_product_attention, in a process of its own, in the same
run. Two runs of five steps are compared bit by bit, and with
--xla_gpu_deterministic_ops timed again. Last, the attention of one layer, forward and
backward: the model's, with dropout and without, and JAX's fused kernel, which has none.

It needs jax, keras and keras-hub, and for the peer torch and transformers; no
TensorFlow. Without a GPU it says so, and measures a tiny model on the CPU.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

LENGTHS = {128: (20, 256), 512: (76, 64)}  # length -> predictions, batch of base
SIZES = {"base": (12, 768), "large": (24, 1024)}  # layers, hidden
VOCAB_SIZE = 30522
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
SECONDS = float(os.environ.get("GPU_STEPS_SECONDS", "8"))


def cases(has_gpu: bool) -> list[dict]:
    """What is measured."""
    arrays = {"layers": 12, "hidden": 64, "length": 8, "predictions": 1}
    first = [{"name": "base's arrays", "batch": 1, "vocab_size": 64, **arrays}]
    if not has_gpu:
        tiny = {"layers": 2, "hidden": 128, "length": 128, "predictions": 20}
        return [{"name": "tiny", "batch": 8, "vocab_size": VOCAB_SIZE, **tiny}]
    return first + [
        {
            "name": name,
            "layers": layers,
            "hidden": hidden,
            "length": length,
            "predictions": predictions,
            "batch": batch if name == "base" else batch // 2,
            "vocab_size": VOCAB_SIZE,
        }
        for name, (layers, hidden) in SIZES.items()
        for length, (predictions, batch) in LENGTHS.items()
    ]


def records(case: dict) -> dict:
    """A batch of full sequences under the records' names."""
    import numpy as np

    rng, last = np.random.default_rng(0), case["vocab_size"]
    rows = (case["batch"], case["length"])
    slots = (case["batch"], case["predictions"])
    places = np.sort(rng.random(rows).argsort(axis=1)[:, : slots[1]], axis=1)
    return {
        "input_ids": rng.integers(last // 30, last, rows, "int32"),
        "input_mask": np.ones(rows, "int32"),
        "segment_ids": np.sort(rng.integers(0, 2, rows, "int32"), axis=1),
        "masked_lm_positions": places.astype("int32"),
        "masked_lm_ids": rng.integers(last // 30, last, slots, "int32"),
        "masked_lm_weights": np.ones(slots, "float32"),
        "next_sentence_labels": rng.integers(0, 2, (rows[0], 1), "int32"),
    }


def flops_of(case: dict) -> float:
    """Of the matrix products of a step: see bert_tf.training.throughput."""
    length, hidden = case["length"], case["hidden"]
    flops = case["layers"] * (24 * length * hidden**2 + 4 * length**2 * hidden)
    flops += 2 * case["predictions"] * hidden * (hidden + case["vocab_size"])
    return 3.0 * case["batch"] * flops


def rate(steps, size: int, product) -> tuple[float, float]:
    """Seconds a step, and FLOP/s of products of [size, size], best of several."""
    steps(3)
    count, seconds = 1, 0.0
    while seconds < SECONDS:
        began = time.perf_counter()
        steps(count)
        seconds = time.perf_counter() - began
        done, count = count, 2 * count
    products = []
    for _ in range(5):
        began = time.perf_counter()
        product(20)
        products.append((time.perf_counter() - began) / 20)
    return seconds / done, 2.0 * size**3 / min(products)


def ours(case: dict) -> dict:
    """This package's engine on JAX."""
    os.environ["KERAS_BACKEND"] = "jax"
    sys.path.insert(0, str(REPOSITORY))
    import hashlib

    import jax
    import keras
    import numpy as np

    from bert_tf.config import BertConfig
    from bert_tf.modeling.heads import BertPretrainer
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.training.device_steps import training_steps
    from bert_tf.training.jax_step import DeviceBatches, JaxStrategy
    from bert_tf.training.step import computing_in
    from bert_tf.training.task import Task

    config = BertConfig(
        vocab_size=case["vocab_size"],
        hidden_size=case["hidden"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["hidden"] // 64,
        intermediate_size=4 * case["hidden"],
    )
    strategy = JaxStrategy(jax.devices()[:1])
    batches = DeviceBatches(strategy, itertools.repeat(records(case)))

    def build():
        keras.utils.set_random_seed(1)
        with computing_in("bfloat16"):
            model = BertPretrainer(config)
        optimizer = create_optimizer(1e-4, 10**6, 10, global_clipnorm=None)
        optimizer.build(model.trainable_variables)
        task = Task(name="gpu", build_model=lambda: model, objective=model.objective)
        return model, training_steps(task, model, optimizer, strategy)

    digests = []
    for _ in range(2):
        model, steps = build()
        steps(batches, 5)
        digest = hashlib.sha256()
        for weight in model.trainable_variables:
            digest.update(np.asarray(weight.value).tobytes())
        digests.append(digest.hexdigest())
    size = 512 if strategy.device_kind == "CPU" else 8192
    a = jax.numpy.ones([size, size], "bfloat16")
    matmul = jax.jit(lambda x, y: x @ y)

    def product(count):
        for _ in range(count):
            result = matmul(a, a)
        result.block_until_ready()

    seconds, peak = rate(lambda count: steps(batches, count), size, product)
    memory = jax.devices()[0].memory_stats() or {}
    return {
        "seconds": seconds,
        "peak": peak,
        "memory": memory.get("peak_bytes_in_use", 0),
        "same_bits": digests[0] == digests[1],
    }


def attention(case: dict) -> dict:
    """The attention of one layer: milliseconds of each way, and how they differ."""
    os.environ["KERAS_BACKEND"] = "jax"
    sys.path.insert(0, str(REPOSITORY))
    import jax
    import numpy as np
    from jax import numpy as jnp

    from bert_tf.config import ATTENTION_MASK_PENALTY
    from bert_tf.modeling import fused

    rows, length, heads = case["batch"], case["length"], case["hidden"] // 64
    rng, seed = np.random.default_rng(0), jnp.array([1, 2], "uint32")
    shape = (rows, length, heads, 64)
    query, key, value, upstream = (
        jnp.asarray(rng.normal(size=shape), "bfloat16") for _ in range(4)
    )
    lengths = rng.integers(length // 2, length + 1, rows)
    mask = jnp.arange(length) < lengths[:, None, None, None]
    bias = jnp.where(mask, 0.0, ATTENTION_MASK_PENALTY)
    every = jnp.broadcast_to(mask, (rows, 1, length, length))
    kernel = "cudnn" if jax.devices()[0].platform == "gpu" else "xla"

    def ours(rate: float):
        def attend(query, key, value):
            by_head = [x.transpose(0, 2, 1, 3) for x in (query * 64**-0.5, key, value)]
            scores = by_head[0] @ by_head[1].swapaxes(2, 3)
            own = seed if rate else None
            weights = fused.dropped_softmax(scores, bias, own, rate)
            return (weights @ by_head[2]).transpose(0, 2, 1, 3)

        return attend

    def theirs(query, key, value):
        return jax.nn.dot_product_attention(
            query, key, value, mask=every, implementation=kernel
        )

    def both_ways(attend):
        def loss(*inputs):
            output = attend(*inputs)
            return (output * upstream).sum().astype("float32"), output

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))

    found: dict = {}
    ways = {"dropout": ours(0.1), "plain": ours(0.0), "fused": theirs}
    results = {}
    for name, attend in ways.items():
        step = both_ways(attend)
        (_, output), gradients = step(query, key, value)
        results[name] = [np.asarray(x, "float32") for x in (output, *gradients)]
        count, seconds = 1, 0.0
        while seconds < SECONDS:
            began = time.perf_counter()
            for _ in range(count):
                result = step(query, key, value)
            jax.block_until_ready(result)
            seconds = time.perf_counter() - began
            done, count = count, 2 * count
        found[name] = 1e3 * seconds / done
    found["difference"] = max(
        float(abs(a - b).max() / abs(a).max())
        for a, b in zip(results["plain"], results["fused"], strict=True)
    )
    return found


def peer(case: dict) -> dict:
    """Transformers' BertForPreTraining, compiled by PyTorch."""
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.BertConfig(
        vocab_size=case["vocab_size"],
        hidden_size=case["hidden"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["hidden"] // 64,
        intermediate_size=4 * case["hidden"],
        attn_implementation="sdpa",
    )
    model = transformers.BertForPreTraining(config).to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, fused=device == "cuda"
    )
    batch = {
        name: torch.from_numpy(value).long().to(device)
        for name, value in records(case).items()
    }
    labels = torch.full_like(batch["input_ids"], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])
    forward = torch.compile(model) if device == "cuda" else model

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                loss = forward(
                    input_ids=batch["input_ids"],
                    token_type_ids=batch["segment_ids"],
                    labels=labels,
                    next_sentence_label=batch["next_sentence_labels"][:, 0],
                ).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        float(loss)

    size = 8192 if device == "cuda" else 512
    a = torch.ones([size, size], dtype=torch.bfloat16, device=device)

    def product(count):
        for _ in range(count):
            result = a @ a
        float(result[0, 0])

    seconds, peak = rate(steps, size, product)
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {"seconds": seconds, "peak": peak, "memory": memory}


def measured(function: str, case: dict, **environment: str) -> dict | None:
    """What a function returns in a process of its own; None where it fails."""
    done = subprocess.run(
        [sys.executable, __file__, function, json.dumps(case)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  {function}: skipped: {last}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def show(name: str, case: dict, found: dict | None) -> None:
    """Prints one row."""
    if found is not None:
        tokens = case["batch"] * case["length"] / found["seconds"]
        share = flops_of(case) / found["seconds"] / found["peak"]
        print(
            f"  {name:16s} {1e3 * found['seconds']:8.1f} ms a step"
            f" {tokens:12,.0f} tokens/s  {share:5.1%} of the products'"
            f" rate  {found['memory'] / 2**30:6.2f} GiB",
            flush=True,
        )


def main() -> None:
    """Measures all cases, or one in a process of its own."""
    if len(sys.argv) == 3 and sys.argv[1] in ("ours", "attention", "peer"):
        found = globals()[sys.argv[1]](json.loads(sys.argv[2]))
        print(json.dumps(found))
        return
    import jax

    has_gpu = jax.devices()[0].platform == "gpu"
    if not has_gpu:
        print("No GPU here: a tiny model on the CPU, which shows that the script runs.")
    for case in cases(has_gpu):
        print(f"{case['name']}, length {case['length']}, batch {case['batch']}")
        found = measured("ours", case)
        show("bert_tf, JAX", case, found)
        if found is not None:
            same = "the same bits" if found["same_bits"] else "other bits"
            print(f"  two runs have {same}")
        if has_gpu:
            flags = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
            show("deterministic", case, measured("ours", case, **flags))
        show("transformers", case, measured("peer", case))
        if found := measured("attention", case):
            print(
                f"  attention of a layer: {found['dropout']:.2f} ms with dropout,"
                f" {found['plain']:.2f} without, JAX's kernel {found['fused']:.2f};"
                f" they differ by {found['difference']:.1e}"
            )


if __name__ == "__main__":
    main()
