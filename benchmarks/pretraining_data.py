"""Pre-training records: seconds, memory and equality, ours and two peers.

    python benchmarks/pretraining_data.py --data_dir=DATA --original_dir=BERT

DATA holds wikipedia_en/*.xz and vocab/bert-base-uncased/vocab.txt; BERT is a checkout
of github.com/google-research/bert at eedf571. Without --original_dir only ours is
measured. tf-models' copy (tf-models-official) is installed into a folder of its own,
unless --tf_models=False.

Each run is a process of its own on the same text, one sentence a line; the time of a
run on two sentences (imports, vocabulary) is called start-up and taken off. MB are
millions of bytes of input text. Memory is the largest sum, over a run's processes, of
what they hold (proportional set size), looked at three times a second.
"""

import dataclasses
import lzma
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import psutil
from absl import app, flags
from parts.commands import measured

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder of the corpora.")
_ORIGINAL_DIR = flags.DEFINE_string("original_dir", None, "Checkout of the original.")
_TF_MODELS = flags.DEFINE_bool("tf_models", True, "Measure tf-models' copy too.")
_MEGABYTES = flags.DEFINE_list(
    "megabytes", ["2.26", "12", "60"], "Sizes of text to measure ours on."
)
_SHARDED_MEGABYTES = flags.DEFINE_list(
    "sharded_megabytes", [], "Further sizes: ours, sharded and static."
)
_PEER_MEGABYTES = flags.DEFINE_float(
    "peer_megabytes", 2.26, "Text to measure the peers on, and to compare all records."
)
_SHARD_MEGABYTES = flags.DEFINE_float("shard_megabytes", 6.0, "Text of a shard.")
_NUM_WORKERS = flags.DEFINE_list("num_workers", ["1", "2"], "Numbers of workers.")
_REPETITIONS = flags.DEFINE_integer(
    "repetitions", 1, "Runs of each measurement of ours; the fastest counts."
)
_FUZZ = flags.DEFINE_integer(
    "fuzz", 0, "Further comparisons, on small random corpora and random settings."
)
_SEED = flags.DEFINE_integer("fuzz_seed", 0, "Seed of the random settings.")

# Wikipedia and BooksCorpus together, as text.
_LARGE_CORPUS_MB = 16_000

OURS, ORIGINAL, TF_MODELS = "ours", "google-research/bert", "tf-models"

# The original runs on TensorFlow 1; compat.v1 of today's has all the names it uses.
RUN_ORIGINAL = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import tensorflow.compat.v1 as tensorflow
sys.modules["tensorflow"] = tensorflow
import create_pretraining_data
for name in ("input_file", "output_file", "vocab_file"):
    tensorflow.flags.mark_flag_as_required(name)
tensorflow.app.run(create_pretraining_data.main)
"""


@dataclasses.dataclass
class Run:
    """One finished command."""

    seconds: float
    peak_bytes: int


class Peers:
    """The commands, and the start-up of each."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._tf_models = folder / "tf-models"
        self.names = [OURS]
        if _ORIGINAL_DIR.value:
            self.names.append(ORIGINAL)
            if _TF_MODELS.value and self._install_tf_models():
                self.names.append(TF_MODELS)
        self.startup: dict[str, float] = {}

    def _install_tf_models(self) -> bool:
        packages = ["tf-models-official==2.20.0", "tf_keras"]
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*install, "--target", self._tf_models, *packages], capture_output=True
        )
        if done.returncode:
            print("tf-models: skipped, cannot be installed")
        return done.returncode == 0

    def command(self, name: str) -> list[str]:
        """What is run."""
        if name == ORIGINAL:
            return [sys.executable, "-c", RUN_ORIGINAL, _ORIGINAL_DIR.value]
        if name == TF_MODELS:
            return [sys.executable, "-m", "official.nlp.data.create_pretraining_data"]
        return [sys.executable, "-m", "tfrecords.create_pretraining_data"]

    def run(self, name: str, **settings: object) -> Run:
        """Runs a script to its end.

        Args:
            name: whose script.
            **settings: the flags.
        """
        variables = {"PYTHONPATH": str(self._tf_models)} if name == TF_MODELS else {}
        arguments = [f"--{flag}={value}" for flag, value in settings.items()]
        peak, seconds = measured(
            self.command(name) + arguments, shared_out_bytes, **variables
        )
        return Run(seconds, peak)

    def best(self, name: str, **settings: object) -> Run:
        """The fastest of several runs, of ours; each from the beginning."""
        repetitions = _REPETITIONS.value if name == OURS else 1
        if name == OURS:
            settings["overwrite"] = True
        runs = [self.run(name, **settings) for _ in range(repetitions)]
        return min(runs, key=lambda run: run.seconds)


def shared_out_bytes(process: psutil.Process) -> int:
    """What a process holds; shared memory is shared out."""
    return process.memory_full_info().pss


def read(path: pathlib.Path) -> list[bytes]:
    """The records of a file, each in one canonical form."""
    import tensorflow as tf

    return [
        tf.train.Example.FromString(record.numpy()).SerializeToString(
            deterministic=True
        )
        for record in tf.data.TFRecordDataset(str(path))
    ]


def num_differing(ours: pathlib.Path, theirs: pathlib.Path) -> tuple[int, int]:
    """Records of two files that are not the same in the same place, and all of ours."""
    mine, other = read(ours), read(theirs)
    count = abs(len(mine) - len(other))
    return count + sum(a != b for a, b in zip(mine, other, strict=False)), len(mine)


def write_corpus(path: pathlib.Path, num_bytes: int) -> None:
    """Wikipedia text, one sentence a line, a blank line between articles.

    The text is repeated where there is too little of it.
    """
    archives = sorted(pathlib.Path(_DATA_DIR.value, "wikipedia_en").glob("*.xz"))
    written = 0
    with path.open("w", encoding="utf-8") as corpus:
        while True:
            for archive in archives:
                with lzma.open(archive, "rt", encoding="utf-8") as text:
                    for line in text:
                        if line.startswith("</doc"):
                            line = "\n"
                        elif line.startswith("<doc") or not line.strip():
                            continue
                        else:
                            line = re.sub(r"(?<=[.!?]) +(?=[A-Z\"'(])", "\n", line)
                        written += len(line.encode("utf-8"))
                        corpus.write(line)
                        if written >= num_bytes:
                            return


def write_fuzz_corpus(path: pathlib.Path, rng: random.Random, words: list[str]) -> None:
    """A few documents, some of one sentence, some sentences of a hundred words."""
    lines = []
    for _ in range(rng.choice([1, 2, 3, 10])):
        for _ in range(rng.choice([1, 2, 5, 30])):
            length = rng.choice([1, 3, 10, 100])
            lines.append(" ".join(rng.choice(words) for _ in range(length)))
        lines += [""] * rng.choice([1, 1, 3])
    text = "\n".join(lines) + rng.choice(["", "\n", "\r\n"])
    path.write_text(text, encoding="utf-8", newline="")


class Benchmark:
    """All measurements, in one temporary folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.peers = Peers(folder)
        self.vocab_file = f"{_DATA_DIR.value}/vocab/bert-base-uncased/vocab.txt"
        self.num_compared = self.num_differing = 0
        self.rate = 0.0  # MB/s of a worker, sharded and static

    def path(self, name: str) -> pathlib.Path:
        """A file of the temporary folder."""
        return self.folder / name

    def corpus(self, megabytes: float) -> pathlib.Path:
        """Wikipedia text of that size."""
        path = self.path(f"wikipedia-{megabytes:g}.txt")
        if not path.exists():
            write_corpus(path, int(megabytes * 1e6))
        return path

    def measure_startup(self) -> None:
        """What each needs for two sentences."""
        two_lines = self.path("two_lines.txt")
        two_lines.write_text("One sentence.\nAnother one.\n", encoding="utf-8")
        for name in self.peers.names:
            settings = {
                "input_file": two_lines,
                "output_file": self.path("startup"),
                "vocab_file": self.vocab_file,
                "dupe_factor": 1,
            }
            # The first run of ours on a machine compiles; that is told apart.
            runs = [self.peers.best(name, **settings) for _ in range(2)]
            self.peers.startup[name] = runs[1].seconds
            print(
                f"start-up {name:21s} {runs[1].seconds:5.1f} s"
                f" (the first time {runs[0].seconds:.1f} s)",
                flush=True,
            )

    def report(self, label: str, name: str, megabytes: float, run: Run) -> float:
        """Prints a run; returns its seconds without start-up."""
        net = run.seconds - self.peers.startup[name]
        print(
            f"  {label:34s} {run.seconds:7.1f} s, without start-up {net:7.1f} s"
            f" {megabytes / net:6.2f} MB/s {run.peak_bytes / 1e6:6.0f} MB of memory",
            flush=True,
        )
        return net

    def compare(self, title: str, num_outputs: int = 1, **settings: object) -> None:
        """Ours and the original with the same flags."""
        outputs = {
            name: [self.path(f"{label}-{number}") for number in range(num_outputs)]
            for name, label in ((OURS, "ours"), (ORIGINAL, "theirs"))
        }
        for name, paths in outputs.items():
            self.peers.best(
                name,
                vocab_file=self.vocab_file,
                output_file=",".join(map(str, paths)),
                **settings,
            )
        self.count(title, outputs[OURS], outputs[ORIGINAL])

    def count(
        self, title: str, ours: list[pathlib.Path], theirs: list[pathlib.Path]
    ) -> None:
        """Prints how many records of two sets differ, and adds them up."""
        found = [num_differing(a, b) for a, b in zip(ours, theirs, strict=True)]
        differing = sum(count for count, _ in found)
        compared = sum(count for _, count in found)
        self.num_differing += differing
        self.num_compared += compared
        print(f"{title}: {differing} of {compared} records differ", flush=True)

    def compare_all(self) -> None:
        """Equality with the original."""
        self.compare(
            "sample_text.txt, the README's command",
            input_file=f"{_ORIGINAL_DIR.value}/sample_text.txt",
            do_lower_case=True,
            max_seq_length=128,
            max_predictions_per_seq=20,
            masked_lm_prob=0.15,
            random_seed=12345,
            dupe_factor=5,
        )
        self.compare(
            "Wikipedia, whole words",
            input_file=self.corpus(_PEER_MEGABYTES.value),
            do_whole_word_mask=True,
        )
        self.compare_shards()
        rng = random.Random(_SEED.value)
        words = self.corpus(_PEER_MEGABYTES.value).read_text(encoding="utf-8").split()
        for number in range(_FUZZ.value):
            inputs = [self.path(f"fuzz-{index}") for index in range(rng.choice([1, 3]))]
            for path in inputs:
                write_fuzz_corpus(path, rng, words)
            self.compare(
                f"fuzz {number}",
                rng.choice([1, 2, 5]),
                input_file=",".join(map(str, inputs)),
                do_whole_word_mask=rng.random() < 0.5,
                do_lower_case=rng.random() < 0.5,
                max_seq_length=rng.choice([5, 6, 16, 64, 128, 512]),
                max_predictions_per_seq=rng.choice([1, 5, 20, 77]),
                masked_lm_prob=rng.choice([0.01, 0.15, 0.5, 1.0]),
                short_seq_prob=rng.choice([0.0, 0.1, 1.0]),
                dupe_factor=rng.choice([1, 2, 5]),
                random_seed=rng.randrange(1 << 32),
            )

    def compare_shards(self, num_shards: int = 3) -> None:
        """Each shard, and the original on the shard's documents and seed."""
        from bert_tf.records.manifest import Manifest

        corpus = self.corpus(_PEER_MEGABYTES.value)
        output = self.path("sharded")
        settings = {"vocab_file": self.vocab_file, "dupe_factor": 3}
        self.peers.best(
            OURS,
            input_file=corpus,
            output_file=output,
            num_shards=num_shards,
            **settings,
        )
        manifest = Manifest.from_json_file(f"{output}.manifest.json")
        documents = corpus.read_text(encoding="utf-8").strip().split("\n\n")
        ours, theirs = [], []
        for number, shard in enumerate(manifest.shards):
            group = self.path(f"group-{number}.txt")
            group.write_text("\n\n".join(documents[number::num_shards]), "utf-8")
            ours.append(self.path(shard.name))
            theirs.append(self.path(f"group-{number}"))
            self.peers.run(
                ORIGINAL,
                input_file=group,
                output_file=theirs[-1],
                random_seed=shard.random_seed,
                **settings,
            )
        self.count(f"Wikipedia in {num_shards} shards", ours, theirs)

    def measure_peers(self) -> None:
        """Ours and the peers in the original's way."""
        megabytes = _PEER_MEGABYTES.value
        print(f"{megabytes:g} MB, dupe_factor 10, one core")
        nets = {}
        for name in self.peers.names:
            outputs = self.path(f"{name.replace('/', '-')}-timed")
            settings = {
                "input_file": self.corpus(megabytes),
                "output_file": outputs,
                "vocab_file": self.vocab_file,
            }
            if name == OURS:
                settings["num_workers"] = 1
            run = self.peers.best(name, **settings)
            nets[name] = self.report(name, name, megabytes, run)
        for name in self.peers.names[1:]:
            print(f"  ours is {nets[name] / nets[OURS]:.1f} times as fast as {name}")
        if ORIGINAL in nets:
            self.count(
                "  the same records",
                [self.path(f"{OURS}-timed")],
                [self.path(f"{ORIGINAL.replace('/', '-')}-timed")],
            )

    def measure_ways(self) -> None:
        """Ours: sizes, ways, masking and workers."""
        for megabytes in map(float, _MEGABYTES.value):
            corpus = self.corpus(megabytes)
            num_shards = max(1, round(megabytes / _SHARD_MEGABYTES.value))
            print(f"{megabytes:g} MB, ours")
            ways = {
                "pool, static": {},
                f"{num_shards} shards, static": {"num_shards": num_shards},
                f"{num_shards} shards, dynamic": {
                    "num_shards": num_shards,
                    "masking": "dynamic",
                },
            }
            for label, settings in ways.items():
                nets = []
                for num_workers in map(int, _NUM_WORKERS.value):
                    output = self.path(f"way-{len(label)}")
                    run = self.peers.best(
                        OURS,
                        input_file=corpus,
                        output_file=output,
                        vocab_file=self.vocab_file,
                        num_workers=num_workers,
                        **settings,
                    )
                    workers = f"{num_workers} worker{'s' * (num_workers > 1)}"
                    nets.append(
                        self.report(f"{label}, {workers}", OURS, megabytes, run)
                    )
                if "shards, static" in label:
                    self.rate = megabytes / nets[-1] / int(_NUM_WORKERS.value[-1])
                size = sum(path.stat().st_size for path in self.folder.glob("way-*"))
                print(
                    f"    {size / 1e6:.0f} MB of records;"
                    f" the last number of workers {nets[0] / nets[-1]:.2f} times as"
                    " fast as the first"
                )
                for path in self.folder.glob("way-*"):
                    path.unlink()

    def measure_large(self) -> None:
        """Ours on large text, sharded; the estimate is then by its rate."""
        for megabytes in map(float, _SHARDED_MEGABYTES.value):
            corpus = self.corpus(megabytes)
            num_shards = max(1, round(megabytes / _SHARD_MEGABYTES.value))
            nets = []
            for num_workers in map(int, _NUM_WORKERS.value):
                run = self.peers.best(
                    OURS,
                    input_file=corpus,
                    output_file=self.path("large"),
                    vocab_file=self.vocab_file,
                    num_shards=num_shards,
                    num_workers=num_workers,
                )
                label = f"{megabytes:g} MB, {num_shards} shards, {num_workers} workers"
                nets.append(self.report(label, OURS, megabytes, run))
                for path in self.folder.glob("large*"):
                    path.unlink()
            self.rate = megabytes / nets[-1] / num_workers
            corpus.unlink()

    def estimate(self) -> None:
        """How long Wikipedia and BooksCorpus would take."""
        for cores in (2, 16, 64):
            hours = _LARGE_CORPUS_MB / (self.rate * cores) / 3600
            print(
                f"16 GB of text, static, dupe_factor 10, {cores} cores: {hours:.2f} h,"
                f" if {cores} workers are {cores} times as fast as one"
            )


def main(_: list[str]) -> None:
    if not _DATA_DIR.value or not os.path.isdir(_DATA_DIR.value):
        print(f"pretraining_data: skipped, no data: --data_dir={_DATA_DIR.value}")
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as name:
        benchmark = Benchmark(pathlib.Path(name))
        benchmark.measure_startup()
        if _ORIGINAL_DIR.value:
            benchmark.compare_all()
        benchmark.measure_peers()
        benchmark.measure_ways()
        benchmark.measure_large()
        benchmark.estimate()
    print(
        f"differing records in all: {benchmark.num_differing} of "
        f"{benchmark.num_compared}"
    )
    if benchmark.num_differing:
        raise SystemExit(1)


if __name__ == "__main__":
    app.run(main)
