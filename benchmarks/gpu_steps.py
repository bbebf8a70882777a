"""Pre-training steps of BERT on a GPU with JAX, beside transformers on PyTorch.

    python benchmarks/gpu_steps.py

Batches are generated and lie on the device; bfloat16, dropout 0.1, forward, backward,
clipping and the update of every weight. For each size and length: tokens a second, the
share of the rate of matrix products that the same back end reached just before, and
the most memory. The peer is transformers' BertForPreTraining with torch.compile and
scaled_dot_product_attention, in a process of its own, in the same run. Two runs of five
steps are compared bit by bit, and with --xla_gpu_deterministic_ops timed again.

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

from peers.pretraining_steps import VOCAB_SIZE, records

LENGTHS = {128: (20, 256), 512: (76, 64)}  # length -> predictions, batch of base
SIZES = {"base": (12, 768), "large": (24, 1024)}  # layers, hidden
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
SECONDS = float(os.environ.get("GPU_STEPS_SECONDS", "8"))


def cases(has_gpu: bool) -> list[dict]:
    """What is measured."""
    if not has_gpu:
        tiny = {"layers": 2, "hidden": 128, "length": 128, "predictions": 20}
        return [{"name": "tiny", "batch": 8, **tiny}]
    return [
        {
            "name": name,
            "layers": layers,
            "hidden": hidden,
            "length": length,
            "predictions": predictions,
            "batch": batch if name == "base" else batch // 2,
        }
        for name, (layers, hidden) in SIZES.items()
        for length, (predictions, batch) in LENGTHS.items()
    ]


def flops_of(case: dict) -> float:
    """Of the matrix products of a step: see bert_tf.training.throughput."""
    length, hidden = case["length"], case["hidden"]
    flops = case["layers"] * (24 * length * hidden**2 + 4 * length**2 * hidden)
    flops += 2 * case["predictions"] * hidden * (hidden + VOCAB_SIZE)
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

    from bert_tf.base.config import BertConfig
    from bert_tf.modeling.heads import BertPretrainer
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.training.jax_step import DeviceBatches, JaxStrategy
    from bert_tf.training.step import computing_in, on_devices
    from bert_tf.training.task import Task

    config = BertConfig(
        vocab_size=VOCAB_SIZE,
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
        return model, on_devices().training_steps(task, model, optimizer, strategy)

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


def peer(case: dict) -> dict:
    """Transformers' BertForPreTraining, compiled by PyTorch."""
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.BertConfig(
        vocab_size=VOCAB_SIZE,
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
    if len(sys.argv) == 3 and sys.argv[1] in ("ours", "peer"):
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


if __name__ == "__main__":
    main()
