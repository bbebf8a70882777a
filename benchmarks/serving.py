r"""Milliseconds for a call: one text at a time, and the first texts after loading.

    python benchmarks/serving.py --env_dir=ENVIRONMENTS

Without --checkpoint, a run of classification, a random one of all-MiniLM-L6-v2's size
(6 layers of 384) is made. Each way runs in a process of its own, takes turns with the
others, ten calls each, and must give the same logits; what is not installed is left
out, with a line:

    load, Keras       bert_tf.load(RUN, runtime="keras").predict, texts to labels
    load, ONNX        the same with ONNX Runtime
    load, export      bert_tf.load of the run's ONNX file
    load, int8        the same of its export with --quantize=int8
    SavedModel        the run's export, texts to probabilities
    ONNX Runtime      the run's ONNX file and tokenizer.json without bert_tf: a session,
                      and the package tokenizers; texts to logits
    OpenVINO          the same file and tokenizer, by OpenVINO
    Keras call        the Keras model in a tf.function of any length, and the tokenizer;
                      texts to logits: what the SavedModel's graph is measured by
    keras predict     model.predict(tokenizer(text)), texts to logits
    transformers      the run's Hugging Face folder in PyTorch, texts to logits
    torch.compile     the same, compiled for any length while it is loaded
    CTranslate2       the same folder, converted; the classifier's product by numpy

--methods=embed,tag,answer,fill measures these of `bert_tf.load`'s methods with ONNX
Runtime, each with a random model of its head, beside the same model's ONNX file and
tokenizer.json without bert_tf, and the least code that finds the same in the outputs: a
mean vector, a label for each word, the best span, the five likeliest tokens.

The last three run in an environment of their own, which the first run makes under
--env_dir and later ones find there (about 1 GB).

p50 and p99 are over 100 calls with one text of 20 and of 128 tokens; "first" are 200
texts of 3 to 128 tokens right after loading, and MB the most memory until then;
texts/s are of 256 texts of up to 128 tokens, 32 in a call.
"""

import argparse
import functools
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parts.commands import Worker

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FIRST, CALLS = 200, 100
TURN = 10  # calls of one way, before the next way has its turn
PAUSE = 0.1  # seconds after them, until a runtime's threads no longer wait for work
NUM_TEXTS, BATCH = 256, 32
MAX_LENGTH = 128
LENGTHS = (20, 128)
NUM_WORDS = 1000
NUM_LABELS = 9
LONGEST_ANSWER = 30  # tokens, run_squad's default
NUM_ASKED = 6  # words of a text, at most, that are the question about the others
METHODS = ("embed", "tag", "answer", "fill")


def make_checkpoint(folder: str, method: str = "predict") -> None:
    """A model with random weights that has the method, and its vocabulary."""
    import numpy as np

    from bert_tf.base.config import BertConfig
    from bert_tf.modeling import heads
    from bert_tf.training.checkpoints import RunCheckpoints

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"w{number}" for number in range(NUM_WORDS)]
    config = BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    made: dict[str, Callable[[], Any]] = {
        "predict": lambda: heads.BertClassifier(config, 2),
        "embed": lambda: heads.BertClassifier(config, 2),
        "tag": lambda: heads.BertTagger(config, NUM_LABELS),
        "answer": lambda: heads.BertSpanPredictor(config),
        "fill": lambda: heads.BertPretrainer(config),
    }
    model = made[method]()
    random = np.random.default_rng(0)
    for weight in model.weights:
        # Around 1 what layer normalization multiplies by: the texts must matter.
        mean = float(weight.path.endswith("gamma"))
        weight.assign(random.normal(mean, 0.05, weight.shape))
    os.makedirs(folder)
    with RunCheckpoints(folder, model) as checkpoints:
        checkpoints.save(1, 1)
    path = os.path.join(folder, "bert_config.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(config.to_json_string())
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
        file.writelines(f"{token}\n" for token in special + words)
    with open(os.path.join(folder, "flags.json"), "w", encoding="utf-8") as file:
        json.dump({"max_seq_length": MAX_LENGTH}, file)


# A way: the folder with the checkpoint and its exports -> texts to logits [N, C], or to
# predictions with probabilities.
Predict = Callable[[list[str]], Any]


def load_keras(folder: str) -> Predict:
    import bert_tf

    return bert_tf.load(f"{folder}/checkpoint", runtime="keras").predict


def load_onnx(folder: str) -> Predict:
    import bert_tf

    return bert_tf.load(f"{folder}/checkpoint", runtime="onnxruntime").predict


def load_export(folder: str) -> Predict:
    import bert_tf

    return bert_tf.load(f"{folder}/onnx").predict


def load_int8(folder: str) -> Predict:
    import bert_tf

    return bert_tf.load(f"{folder}/int8").predict


def saved_model(folder: str) -> Predict:
    import tensorflow as tf
    import tensorflow_text

    del tensorflow_text  # its operations are registered
    model = tf.saved_model.load(f"{folder}/saved_model")
    signature = model.signatures["one_text"]
    return lambda texts: signature(text_a=tf.constant(texts))["logits"]


def _tokenizer(folder: str) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/huggingface/tokenizer.json")
    tokenizer.enable_truncation(MAX_LENGTH)
    tokenizer.enable_padding()
    return tokenizer


def _arrays(encodings: list[Any]) -> dict[str, Any]:
    import numpy as np

    return {
        "input_ids": np.array([one.ids for one in encodings], np.int64),
        "attention_mask": np.array([one.attention_mask for one in encodings], np.int64),
        "token_type_ids": np.array([one.type_ids for one in encodings], np.int64),
    }


def onnxruntime_alone(folder: str) -> Predict:
    import onnxruntime

    tokenizer = _tokenizer(folder)
    session = onnxruntime.InferenceSession(f"{folder}/onnx/model.onnx")
    return lambda texts: session.run(None, _arrays(tokenizer.encode_batch(texts)))[0]


def openvino_alone(folder: str) -> Predict:
    import openvino

    tokenizer = _tokenizer(folder)
    exact = {"INFERENCE_PRECISION_HINT": "f32"}  # where bfloat16 is the default
    model = openvino.compile_model(f"{folder}/onnx/model.onnx", "CPU", exact)
    return lambda texts: model(_arrays(tokenizer.encode_batch(texts)))[0]


def keras_predict(folder: str) -> Predict:
    import bert_tf

    classifier = bert_tf.load_classifier(f"{folder}/checkpoint")
    tokenizer = bert_tf.load_tokenizer(f"{folder}/checkpoint")
    return lambda texts: classifier.predict(
        tokenizer(texts, max_length=MAX_LENGTH), verbose=0
    )["logits"]


def keras_call(folder: str) -> Predict:
    import tensorflow as tf

    import bert_tf

    model = bert_tf.load_classifier(f"{folder}/checkpoint")
    tokenizer = bert_tf.load_tokenizer(f"{folder}/checkpoint")
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in model.input}
    call = tf.function(lambda x: model(x, training=False), input_signature=[specs])

    def predict(texts: list[str]) -> Any:
        found = tokenizer(texts, max_length=MAX_LENGTH)
        return call({name: tf.constant(found[name], tf.int32) for name in specs})[
            "logits"
        ]

    return predict


def transformers_eager(folder: str, is_compiled: bool = False) -> Predict:
    # What is compiled is not read from an earlier process.
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    import torch
    import transformers

    path = f"{folder}/huggingface"
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
    call = torch.compile(model, dynamic=True) if is_compiled else model
    options = {"padding": True, "truncation": True, "max_length": MAX_LENGTH}

    def predict(texts: list[str]) -> Any:
        with torch.inference_mode():
            return call(**tokenizer(texts, return_tensors="pt", **options)).logits

    if is_compiled:  # PyTorch compiles one text, and several, each for any length
        predict(["w1 w2"])
        predict(["w1 w2", "w1"])
    return predict


def transformers_compiled(folder: str) -> Predict:
    return transformers_eager(folder, is_compiled=True)


def ctranslate2_alone(folder: str) -> Predict:
    import ctranslate2
    import numpy as np
    import transformers

    path, converted = f"{folder}/huggingface", f"{folder}/ctranslate2"
    if not os.path.exists(converted):  # which the best "ready" does not have
        converter = ctranslate2.converters.TransformersConverter(path)
        converter.convert(converted)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(path)
    kernel, bias = (x.detach().numpy() for x in whole.classifier.parameters())
    encoder = ctranslate2.Encoder(converted, intra_threads=os.cpu_count())

    def predict(texts: list[str]) -> Any:
        found = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)
        pooled = encoder.forward_batch(found["input_ids"]).pooler_output
        return np.array(pooled) @ kernel.T + bias

    return predict


def given_to(method: str, texts: list[str]) -> tuple[list[str], ...]:
    """A method's arguments, of as many tokens as the texts have."""
    words = [text.split() for text in texts]
    if method == "answer":
        asked_by = [max(1, min(NUM_ASKED, len(each) // 3)) for each in words]
        pairs = [
            (" ".join(each[:number]), " ".join(each[number:-1] or each))
            for number, each in zip(asked_by, words, strict=True)
        ]
        return tuple(map(list, zip(*pairs, strict=True)))
    if method == "fill":
        return ([" ".join([*each[:-1], "[MASK]"]) for each in words],)
    return (texts,)


# The part of a method's results for one text that both ways find.
RESULT: dict[str, Callable[[Any], Any]] = {
    "embed": lambda found: found[0].tolist(),
    "tag": lambda found: [int(label) for label in found[0].labels],
    "answer": lambda found: found[0][0].text,
    "fill": lambda found: [[*guess] for guess in found[0][0]],
}


def load_method(folder: str, method: str) -> Predict:
    import bert_tf

    model = bert_tf.load(f"{folder}/checkpoint", runtime="onnxruntime")
    call, result = getattr(model, method), RESULT[method]
    return lambda texts: result(call(*given_to(method, texts)))


def method_alone(folder: str, method: str) -> Predict:
    """Of one text, without the package."""
    import numpy as np
    import onnxruntime

    tokenizer = _tokenizer(folder)
    mask_id, num_tokens = tokenizer.token_to_id("[MASK]"), tokenizer.get_vocab_size()
    session = onnxruntime.InferenceSession(f"{folder}/onnx/model.onnx")
    names = [one.name for one in session.get_outputs()]

    def predict(texts: list[str]) -> Any:
        ((text, *more),) = zip(*given_to(method, texts), strict=True)
        found = tokenizer.encode(text, *more)
        outputs = dict(zip(names, session.run(None, _arrays([found])), strict=True))
        if method == "embed":
            return outputs["last_hidden_state"].mean(axis=1)[0].tolist()
        if method == "tag":
            labels = outputs["logits"][0].argmax(axis=-1).tolist()
            words = enumerate(found.word_ids)
            first = {word: place for place, word in reversed([*words])}
            return [labels[first[word]] for word in sorted({*first} - {None})]
        if method == "answer":
            start, end = outputs["start_logits"][0], outputs["end_logits"][0]
            first = found.sequence_ids.index(1)
            sums = start[first:-1, None] + end[None, first:-1]
            is_span = np.tril(np.triu(np.ones_like(sums)), LONGEST_ANSWER - 1) > 0
            best = np.where(is_span, sums, -np.inf).argmax()
            begin, last = np.unravel_index(best, sums.shape)
            offsets = found.offsets[first:]
            return more[0][offsets[begin][0] : offsets[last][1]]
        logits = outputs["logits"][0, found.ids.index(mask_id), :num_tokens]
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        best = np.argsort(-shares)[:5].tolist()
        return [[tokenizer.id_to_token(one), float(shares[one])] for one in best]

    return predict


# What a way is called -> how it opens the model, the packages that it needs here; None
# where it has an environment of its own.
WAYS: dict[str, tuple[Callable[[str], Predict], tuple[str, ...] | None]] = {
    "load, Keras": (load_keras, ()),
    "load, ONNX": (load_onnx, ("onnx", "onnxruntime")),
    "load, export": (load_export, ("onnx", "onnxruntime")),
    "load, int8": (load_int8, ("onnx", "onnxruntime")),
    "SavedModel": (saved_model, ()),
    "ONNX Runtime": (onnxruntime_alone, ("onnx", "onnxruntime", "tokenizers")),
    "OpenVINO": (openvino_alone, ("onnx", "openvino", "tokenizers")),
    "Keras call": (keras_call, ()),
    "keras predict": (keras_predict, ()),
    "transformers": (transformers_eager, None),
    "torch.compile": (transformers_compiled, None),
    "CTranslate2": (ctranslate2_alone, None),
}
# The ways of a method: with the package, and without.
WITH, WITHOUT = "load", "ONNX Runtime"
METHOD_WAYS = {
    f"{method} {way}": (functools.partial(function, method=method), WAYS[WITHOUT][1])
    for method in METHODS
    for way, function in ((WITH, load_method), (WITHOUT, method_alone))
}


def margin(found: Any) -> float:
    """How much larger the first text's second logit is than its first one."""
    if hasattr(found[0], "probabilities"):
        one, other = found[0].probabilities.values()
        return math.log(other / one)
    return float(found[0][1] - found[0][0])


class Server:
    """What a way's own process does: it opens the model, then answers requests."""

    def __init__(self, way: str, folder: str):
        import numpy as np

        began = time.perf_counter()
        self._predict = {**WAYS, **METHOD_WAYS}[way][0](folder)
        self._seconds = time.perf_counter() - began
        self._random = np.random.default_rng(1)

    def _text(self, length: int) -> str:
        words = self._random.integers(0, NUM_WORDS, length - 2)
        return " ".join(f"w{word}" for word in words)

    def _milliseconds(self, length: int) -> float:
        given = [self._text(length)]
        began = time.perf_counter()
        self._predict(given)
        return 1000 * (time.perf_counter() - began)

    def first(self) -> dict[str, float]:
        """Seconds until it is ready; milliseconds of the first calls; memory after."""
        lengths = self._random.integers(3, MAX_LENGTH + 1, FIRST)
        times = [self._milliseconds(length) for length in lengths]
        mean = statistics.mean(times)
        # Not `resource.getrusage`: its figure is no less than the parent process's.
        status = pathlib.Path("/proc/self/status").read_text("utf-8")
        megabytes = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        first = {"worst": max(times), "mean": mean, "megabytes": megabytes}
        return {"ready": self._seconds, **first}

    def calls(self, length: int) -> list[float]:
        """Milliseconds of one turn's calls, after one that does not count."""
        return [self._milliseconds(length) for _ in range(TURN + 1)][1:]

    def batches(self) -> float:
        """Seconds for all texts."""
        texts = [self._text(n) for n in self._random.integers(5, 129, NUM_TEXTS)]
        began = time.perf_counter()
        for start in range(0, NUM_TEXTS, BATCH):
            self._predict(texts[start : start + BATCH])
        return time.perf_counter() - began

    def margins(self) -> list[float]:
        """How much larger the second logit of some texts is than the first one."""
        texts = [" ".join(f"w{word}" for word in range(n, 2 * n)) for n in range(3, 80)]
        return [margin(self._predict([text])) for text in texts[::10]]

    def results(self) -> list[Any]:
        """What a way of a method finds in some texts."""
        texts = [self._text(length) for length in range(20, MAX_LENGTH, 9)]
        return [self._predict([text]) for text in texts]

    def answer_all(self) -> None:
        """Answers the requests of the standard input, a line of JSON each."""
        for line in sys.stdin:
            method, *arguments = json.loads(line)
            print(json.dumps(getattr(self, method)(*arguments)), flush=True)


def measure(
    ways: dict[str, str], folder: str, last: dict[str, list[str]]
) -> dict[str, dict[str, Any]]:
    """One round: for each way the figures of the table, by their names.

    `last` has requests by the names of their figures.

    All processes live at once. They take turns of some calls, so that a machine that
    becomes slow is slow for all of them.
    """
    # The environments of other packages have not all that it needs.
    from parts.commands import Worker

    workers, found = {}, {}
    for name, python in ways.items():
        workers[name] = Worker(
            [python, __file__, f"--way={name}", f"--folder={folder}"]
        )
        found[name] = asked(workers[name], "first")
    for length in LENGTHS:
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(CALLS // TURN):
            for name, worker in workers.items():
                times[name] += asked(worker, "calls", length)
                time.sleep(PAUSE)
        for name, these in times.items():
            found[name][f"{length} p50"] = statistics.median(these)
            found[name][f"{length} p99"] = statistics.quantiles(these, n=100)[98]
    for name, worker in workers.items():
        found[name] |= {figure: asked(worker, *one) for figure, one in last.items()}
        worker.end()
    return found


def asked(worker: "Worker", method: str, *arguments: Any) -> Any:
    """What a method of a worker's `Server` returns."""
    return json.loads(worker.answer(json.dumps([method, *arguments])))


def make_exports(folder: str, names: Iterable[str], heads: str = "") -> None:
    """What the ways read besides the checkpoint."""
    kinds = {kind: [f"--format={kind}"] for kind in ("saved_model", "huggingface")}
    kinds["onnx"] = ["--format=onnx", *[f"--heads={heads}"] * bool(heads)]
    kinds["int8"] = ["--format=onnx", "--quantize=int8"]
    for name in names:
        arguments = kinds[name]
        command = [sys.executable, "-m", "bert_tf.export_model", *arguments]
        given = [f"--checkpoint={folder}/checkpoint", f"--output_dir={folder}/{name}"]
        subprocess.run([*command, *given], check=True, cwd=ROOT)


def python_of(way: str, env_dir: pathlib.Path) -> str | None:
    """The Python that runs a way; None, with a line, where something is missing."""
    packages = {**WAYS, **METHOD_WAYS}[way][1]
    if packages is None:
        import pretraining_step

        return pretraining_step.python_of(pretraining_step.CTRANSLATE2, env_dir)
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        print(f"{way}: left out, {' and '.join(missing)} not installed")
    return None if missing else sys.executable


def check_margins(found: dict[str, dict[str, Any]]) -> None:
    """Ends the run if a way computes another classifier; int8 is another one."""
    expected = found["Keras call"]["margins"]
    scale = max(map(abs, expected))
    for way, figures in found.items():
        pairs = zip(figures["margins"], expected, strict=True)
        difference = max(abs(one - other) for one, other in pairs) / scale
        if way != "load, int8" and not difference < 1e-3:
            raise SystemExit(f"{way}: its logits differ by {difference:.1g}.")


def is_same(one: Any, other: Any) -> bool:
    """Whether results are equal, numbers to 1e-4."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, abs_tol=1e-4)
    return bool(one == other)


def show_methods(methods: list[str], num_rounds: int) -> None:
    """Prints what each method takes beside its model's outputs alone."""
    print(
        f"{'':8}{'20 tokens':>26}{'128 tokens':>26}\n{'method':8}"
        + f"{WITH:>6}{WITHOUT:>14}{'':6}" * 2
    )
    for method in methods:
        ways = {f"{method} {way}": sys.executable for way in (WITH, WITHOUT)}
        if not all(python_of(way, pathlib.Path()) for way in ways):
            continue
        with tempfile.TemporaryDirectory() as folder:
            make_checkpoint(os.path.join(folder, "checkpoint"), method)
            heads = {"embed": "none", "fill": "masked_lm"}.get(method, "")
            make_exports(folder, ["huggingface", "onnx"], heads)
            last = {"results": ["results"]}
            rounds = [measure(ways, folder, last) for _ in range(num_rounds)]
        one, other = (rounds[0][way]["results"] for way in ways)
        if not is_same(one, other):
            raise SystemExit(f"{method}: the results differ:\n{one}\n{other}")
        cells = ""
        for length in LENGTHS:
            one, other = (
                min(found[way][f"{length} p50"] for found in rounds) for way in ways
            )
            cells += f"{one:6.1f}{other:14.1f}{one / other:6.2f}"
        print(f"{method:8}{cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--env_dir", help="of the peers; else a temporary folder")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ways", help="only these, such as: load, ONNX;ONNX Runtime")
    parser.add_argument(
        "--methods", help="these in place of the ways, such as: embed,tag"
    )
    parser.add_argument("--way", choices=[*WAYS, *METHOD_WAYS], help="serve this one")
    parser.add_argument("--folder", help="with --way: the checkpoint and its exports")
    options, _ = parser.parse_known_args()  # `make benchmark` gives all their data
    if options.way:
        Server(options.way, options.folder).answer_all()
        return
    if options.methods:
        methods = options.methods.split(",")
        if unknown := {*methods} - {*METHODS}:
            parser.error(f"--methods: {sorted(unknown)}; there are {METHODS}")
        show_methods(methods, options.rounds)
        return
    wanted = options.ways.split(";") if options.ways else WAYS
    if unknown := {*wanted} - {*WAYS}:
        parser.error(f"--ways: {sorted(unknown)}; there are {'; '.join(WAYS)}")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = os.path.join(folder, "checkpoint")
        if options.checkpoint:
            os.symlink(os.path.abspath(options.checkpoint), checkpoint)
        else:
            make_checkpoint(checkpoint)
        has_onnx = importlib.util.find_spec("onnxruntime") is not None
        make_exports(
            folder, ["saved_model", "huggingface", *["onnx", "int8"] * has_onnx]
        )
        environments = pathlib.Path(options.env_dir or folder).resolve()
        pythons = {way: python_of(way, environments) for way in wanted}
        ways = {way: python for way, python in pythons.items() if python}
        of_two = not options.checkpoint  # the random classifier's classes
        last = {"seconds": ["batches"], **({"margins": ["margins"]} if of_two else {})}
        rounds = [measure(ways, folder, last) for _ in range(options.rounds)]
    if of_two and "Keras call" in ways:
        check_margins(rounds[0])
    print(
        f"{'':14}{'20 tokens':>16}{'128 tokens':>16}{'first ' + str(FIRST):>16}"
        f"{'texts/s':>10}{'ready':>8}{'MB':>7}\n{'way':14}"
        f"{'p50':>8}{'p99':>8}{'p50':>8}{'p99':>8}{'worst':>8}{'mean':>8}"
    )
    columns = ("20 p50", "20 p99", "128 p50", "128 p99", "worst", "mean")
    for way in ways:
        best = {
            name: min(found[way][name] for found in rounds)
            for name in (*columns, "ready", "seconds", "megabytes")
        }
        times = "".join(f"{best[name]:8.1f}" for name in columns)
        rate = NUM_TEXTS / best["seconds"]
        last = f"{best['ready']:7.1f}s{best['megabytes']:7.0f}"
        print(f"{way:14}{times}{rate:10.0f}{last}")


if __name__ == "__main__":
    main()
