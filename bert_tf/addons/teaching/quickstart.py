"""The recipe on a small scale: from text to a fine-tuned model in minutes."""

import ast
import contextlib
import inspect
import itertools
import math
import os
import random
import re
import statistics
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from absl import logging

from bert_tf import run_classifier, run_pretraining
from bert_tf.base import cli, files, finished
from bert_tf.base.config import BertConfig
from bert_tf.base.options import TASK, Options, option, with_default
from bert_tf.records import create_pretraining_data
from bert_tf.tasks.run_options import FineTuningOptions

# English prose that every Python has: `pydoc_data.topics` (the language reference as
# text) and the docstrings of the standard library, more than 1 MB. A topic or a module
# is a document. Code, grammar and tables are left out.


# Folders of the library that are no prose (tests), or that not every Python has.
_LEFT_OUT = {"__pycache__", "idlelib", "lib2to3", "site-packages", "test", "turtledemo"}

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(*]*[A-Z])")
_PROMPT_OR_GRAMMAR = re.compile(r">>>|\.\.\. |::=|^\s*[|+\\/]|={4}|-{4}|\*{4}|~{4}")
_MARKUP = re.compile(r"[*`]+|:(?:\w+:)+")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*[,.;:!?]?")

_MINIMUM_WORDS = 4


class Document(NamedTuple):
    """A document: its name, and its sentences in order."""

    name: str
    sentences: list[str]


def read_documents() -> Iterator[Document]:
    """Returns the documents, in an order that depends on the Python version alone."""
    from pydoc_data import topics

    for name in sorted(topics.topics):
        yield Document(f"topic {name}", sentences_of(topics.topics[name]))
    library = sysconfig.get_path("stdlib")
    for path in _python_files(library):
        text = "\n\n".join(_docstrings(path))
        yield Document(os.path.relpath(path, library), sentences_of(text))


def sentences_of(text: str) -> list[str]:
    """Returns the sentences of a text's prose: no prompt, grammar or ruled line."""
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text):
        if _PROMPT_OR_GRAMMAR.search(paragraph):
            continue
        plain = _SPACE.sub(" ", _MARKUP.sub("", paragraph)).strip(" -")
        sentences += [s for s in _SENTENCE_END.split(plain) if _is_prose(s)]
    return sentences


def _is_prose(sentence: str) -> bool:
    parts = sentence.split(" ")
    words = sum(1 for part in parts if _WORD.fullmatch(part))
    return (
        words >= _MINIMUM_WORDS
        and words >= 0.6 * len(parts)
        and sentence[0].isupper()
        and sentence[-1] in ".!?:"
    )


def _python_files(folder: str) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(root, name)


def _docstrings(path: str) -> Iterator[str]:
    """Yields the docstrings of a module, its classes and functions, in order."""
    with open(path, "rb") as file, warnings.catch_warnings():
        # Old modules have invalid escapes in their strings.
        warnings.simplefilter("ignore")
        tree = ast.parse(file.read())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield inspect.cleandoc(docstring)


# A labelled task made from plain text: is a sentence as written, or shuffled?
#
# Case and punctuation would give the answer away, so a sentence is reduced to its
# words. It appears twice, as written and shuffled, so that no single word gives the
# answer: the model has to know which words follow each other.


SHUFFLED, AS_WRITTEN = "0", "1"

_WORD_ORDER_WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")

# Shorter sentences can look right in any order; longer ones are easy.
MINIMUM_WORDS, MAXIMUM_WORDS = 5, 20


def usable_words(sentences: Iterable[str]) -> list[list[str]]:
    """Returns the words of each sentence of a fitting length, without repetitions."""
    found = {}
    for sentence in sentences:
        words = _WORD_ORDER_WORD.findall(sentence.lower())
        if MINIMUM_WORDS <= len(words) <= MAXIMUM_WORDS and len(set(words)) > 2:
            found[tuple(words)] = words
    return list(found.values())


def examples(
    sentences: Iterable[list[str]], rng: random.Random
) -> list[tuple[str, str]]:
    """Returns (label, text) of sentences as written and shuffled, in random order."""
    labelled = []
    for words in sentences:
        shuffled = words
        while shuffled == words:
            shuffled = rng.sample(words, len(words))
        labelled += [(AS_WRITTEN, " ".join(words)), (SHUFFLED, " ".join(shuffled))]
    rng.shuffle(labelled)
    return labelled


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Returns the rows as TSV with a header: label, text_a."""
    return "label\ttext_a\n" + "".join(f"{label}\t{text}\n" for label, text in rows)


# The steps of the quickstart. What is finished is not made again: records and runs by
# the commands that make them. quickstart.json holds the settings.


# A BERT of two layers learns something in minutes on two cores. Short sequences allow
# twice the steps and have fewer positions to distinguish: at 64 tokens it had not
# learned to attend to a blank's neighbours in the time given.
MAX_SEQ_LENGTH = 32
MAX_PREDICTIONS_PER_SEQ = 5
# The releases' 0.02 suits their width. At 128 it leaves attention flat for thousands of
# steps; about 1 / sqrt(128) lets it learn from the start.
INITIALIZER_RANGE = 0.08
# Share of the documents that pre-training does not see.
HELD_OUT = 0.25
# Of the original's labels up to two thirds are "random".
NSP_LABELS = "exact"
MAX_EVAL_STEPS = 35
EVAL_BATCH_SIZE = 64
BLANKS = (
    "Return [MASK] if the object is not found.",
    "This [MASK] returns a list of strings.",
    "The [MASK] argument is optional.",
)


class QuickstartOptions(Options, decides="numbers"):
    """The size, the text and the steps of the quickstart."""

    backend: str | None = with_default(FineTuningOptions, "backend", None)
    output_dir: str = with_default(
        FineTuningOptions, "output_dir", "quickstart_output", title=TASK
    )
    random_seed: int = with_default(FineTuningOptions, "random_seed", 12345)
    vocab_size: int = option(4000, "Size of the vocabulary.", least=1)
    num_train_steps: int = option(2500, "Pre-training steps.", least=1)
    num_finetune_examples: int = option(
        2400, "Labelled examples to fine-tune on.", least=1
    )
    num_finetune_seeds: int = option(
        3, "Fine-tuning runs from each start.", least=1, decides="setting"
    )

    def path(self, *names: str) -> str:
        """Returns a path in the output folder."""
        return os.path.join(self.output_dir, *names)


def keep_settings(settings: QuickstartOptions) -> None:
    """Writes the settings; raises InputError if the folder has others."""
    values = {**settings.as_flags(), "nsp_labels": NSP_LABELS}
    del values["output_dir"], values["backend"]
    finished.keep_settings(settings.path("quickstart.json"), values, "a quickstart")


def run_all(settings: QuickstartOptions) -> None:
    """Makes the steps that are not yet done and prints the results."""
    keep_settings(settings)
    if sys.stderr.isatty():
        logging.set_verbosity(logging.WARNING)  # the progress bars are enough
    numbers = itertools.count(1)

    @contextlib.contextmanager
    def step(name: str) -> Iterator[None]:
        print(f"[{next(numbers)}/7] {name} ...", flush=True)
        began = time.monotonic()
        yield
        print(f"    {time.monotonic() - began:.1f} s", flush=True)

    with step("Collect the text"):
        text = collect_text(settings)
    print(
        f"    {text['documents']} documents, {text['sentences']} sentences,"
        f" {text['characters'] / 1e6:.1f} MB; {text['held_out']} documents held out"
    )
    with step("Learn a vocabulary"):
        learn_vocabulary(settings)
    with step("Write masked pairs"):
        write_records(settings)
    with step("Fill in blanks, untrained"):
        print("\n".join(guess(settings, False)))
    with step("Pre-train"):
        print(held_out(pretrain(settings)))
    with step("Fill in blanks, pre-trained"):
        print("\n".join(guess(settings, True)))
    with step("Fine-tune: is a sentence as written, or shuffled?"):
        accuracies = finetune(settings)
    print(table_steps(accuracies, settings))


def collect_text(settings: QuickstartOptions) -> dict[str, int]:
    """Writes the corpus, the held-out text and the labelled tables."""
    documents = [one for one in read_documents() if len(one.sentences) > 1]
    rng = random.Random(settings.random_seed)
    rng.shuffle(documents)
    num_held_out = int(len(documents) * HELD_OUT)
    held_out, seen = documents[:num_held_out], documents[num_held_out:]
    for name, part in (("corpus.txt", seen), ("held_out.txt", held_out)):
        texts = ("".join(f"{line}\n" for line in one.sentences) for one in part)
        files.write_atomically(settings.path(name), "\n".join(texts))
    known = {sentence for document in seen for sentence in document.sentences}
    unseen = usable_words(
        sentence
        for document in held_out
        for sentence in document.sentences
        if sentence not in known
    )
    rng.shuffle(unseen)
    # Two examples per sentence; at least a quarter of the sentences is for evaluation.
    num_train = min(settings.num_finetune_examples // 2, len(unseen) * 3 // 4)
    files.make_folder(settings.path("word_order"))
    for name, words in (("train", unseen[:num_train]), ("dev", unseen[num_train:])):
        path = settings.path("word_order", f"{name}.tsv")
        files.write_atomically(path, table(examples(words, rng)))
    sentences = [s for document in documents for s in document.sentences]
    return {
        "documents": len(documents),
        "held_out": num_held_out,
        "sentences": len(sentences),
        "characters": sum(map(len, sentences)),
    }


def learn_vocabulary(settings: QuickstartOptions) -> None:
    """Learns the vocabulary from the text that pre-training sees."""
    from bert_tf.text.learning import learn_vocabulary as learn

    text = files.read_text(settings.path("corpus.txt"))
    size = settings.vocab_size
    vocabulary = learn(text.split("\n"), vocab_size=size, do_lower_case=True)
    vocabulary.save(settings.path("vocab.txt"))
    path = settings.path("bert_config.json")
    files.write_atomically(path, config(settings).to_json_string())


def config(settings: QuickstartOptions) -> BertConfig:
    """Returns the tiny size's config with the quickstart's vocabulary."""
    return BertConfig.from_size(
        "tiny",
        vocab_size=settings.vocab_size,
        max_position_embeddings=MAX_SEQ_LENGTH,
        initializer_range=INITIALIZER_RANGE,
    )


def write_records(settings: QuickstartOptions) -> None:
    """Writes the masked next-sentence pairs, of the seen and of the held-out text."""
    for name, dupe_factor in (("corpus", 10), ("held_out", 1)):
        cli.run_script(
            create_pretraining_data,
            input_file=settings.path(f"{name}.txt"),
            output_file=settings.path(f"{name}.tfrecord"),
            vocab_file=settings.path("vocab.txt"),
            max_seq_length=MAX_SEQ_LENGTH,
            max_predictions_per_seq=MAX_PREDICTIONS_PER_SEQ,
            dupe_factor=dupe_factor,
            nsp_labels=NSP_LABELS,
            random_seed=settings.random_seed,
        )


def pretrain(settings: QuickstartOptions) -> dict[str, float]:
    """Pre-trains, and evaluates on the held-out text."""
    return results_of(
        run_pretraining,
        settings.path("pretraining"),
        input_file=settings.path("corpus.tfrecord"),
        eval_input_file=settings.path("held_out.tfrecord"),
        bert_config_file=settings.path("bert_config.json"),
        train_batch_size=64,
        eval_batch_size=EVAL_BATCH_SIZE,
        max_eval_steps=MAX_EVAL_STEPS,
        learning_rate=1e-3,
        num_train_steps=settings.num_train_steps,
        num_warmup_steps=settings.num_train_steps // 10,
        random_seed=settings.random_seed,
    )


def held_out(scores: dict[str, float]) -> str:
    """Returns the accuracies on held-out text, next to a constant answer's."""
    lines = ["    held-out text     accuracy   always the most frequent answer"]
    for label, name in (("masked LM", "masked_lm"), ("next sentence", "next_sentence")):
        accuracy, constant = scores[f"{name}_accuracy"], scores[f"{name}_majority"]
        lines.append(f"    {label:<16}{accuracy:>10.1%}{constant:>13.1%}")
    majority = scores["next_sentence_majority"]
    error = math.sqrt(majority * (1.0 - majority) / (MAX_EVAL_STEPS * EVAL_BATCH_SIZE))
    if scores["next_sentence_accuracy"] < majority + 3.0 * error:
        lines.append(
            "    So the next sentence is not learnt yet; --num_train_steps gives more"
            " steps."
        )
    return "\n".join(lines)


def guess(settings: QuickstartOptions, pretrained: bool) -> list[str]:
    """Prints the network's guesses for the blanks."""
    import keras

    from bert_tf.addons.serving import fill_mask
    from bert_tf.conversion.loading import load_pretrainer
    from bert_tf.modeling.heads import BertPretrainer
    from bert_tf.text.vocabulary import Vocabulary
    from bert_tf.text.wordpiece import WordPieceTokenizer

    vocabulary = Vocabulary.from_file(settings.path("vocab.txt"))
    tokenizer = WordPieceTokenizer(vocabulary, recognize_special_tokens=True)
    if pretrained:
        model = load_pretrainer(settings.path("pretraining"))
    else:
        keras.utils.set_random_seed(settings.random_seed)
        model = BertPretrainer(config(settings))
    found = fill_mask.fill_masks(model, tokenizer, BLANKS, top_k=3)
    return [
        fill_mask.show(text, guesses)
        for text, guesses in zip(BLANKS, found, strict=True)
    ]


def finetune(settings: QuickstartOptions) -> dict[str, list[float]]:
    """Returns accuracies by start: the same steps and settings, one run per seed."""
    accuracies: dict[str, list[float]] = {"pre-trained": [], "from scratch": []}
    for number in range(settings.num_finetune_seeds):
        for start, checkpoint in (
            ("pre-trained", {"init_checkpoint": settings.path("pretraining")}),
            ("from scratch", {}),
        ):
            folder = settings.path("finetuning", f"{start}-{number}".replace(" ", "-"))
            accuracy = results_of(
                run_classifier,
                folder,
                task_name="tsv",
                data_dir=settings.path("word_order"),
                vocab_file=settings.path("vocab.txt"),
                bert_config_file=settings.path("bert_config.json"),
                max_seq_length=MAX_SEQ_LENGTH,
                train_batch_size=32,
                eval_batch_size=100,
                learning_rate=2e-4,
                num_train_epochs=4.0,
                random_seed=settings.random_seed + number,
                **checkpoint,
            )["eval_accuracy"]
            print(f"    seed {number}, {start}: {accuracy:.1%}", flush=True)
            accuracies[start].append(accuracy)
    return accuracies


def table_steps(accuracies: dict[str, list[float]], settings: QuickstartOptions) -> str:
    """Returns mean, spread and single values of the accuracies."""
    lines = [f"    {'start':<14}{'mean':>8}{'deviation':>11}   accuracy of each seed"]
    for start, values in accuracies.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        single = "  ".join(f"{value:.1%}" for value in values)
        lines.append(
            f"    {start:<14}{statistics.mean(values):>8.1%}{spread:>11.1%}   {single}"
        )
    lines += [
        f"Everything is in {settings.output_dir}. Try your own:",
        f"    python -m bert_tf.fill_mask --checkpoint={settings.path('pretraining')}"
        ' "The [MASK] is closed."',
    ]
    return "\n".join(lines)


def results_of(script: Any, folder: str, **values: Any) -> dict[str, float]:
    """Returns the results in a folder; trains and evaluates unless that is done."""
    path = os.path.join(folder, "eval_results.txt")
    if not files.exists(path):
        cli.run_script(script, output_dir=folder, do_train=True, do_eval=True, **values)
    return files.read_results(path)


def run(options: QuickstartOptions) -> None:
    """Makes the steps that are not yet done."""
    cli.import_tensorflow(options)
    run_all(options)
