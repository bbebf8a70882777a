import gzip
import importlib
import json
import os
import pathlib
import re
import shutil
import types
from unittest import mock

import pytest
import tensorflow as tf
from absl import flags

from bert_tf.addons.planning import plan, plan_measurements
from bert_tf.addons.planning.plan import choose
from bert_tf.addons.planning.plan_measurements import Pace
from bert_tf.base import cli
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import source
from bert_tf.conversion.tokenizer_files import write_tokenizer_json
from bert_tf.records.manifest import written_files
from bert_tf.text import sources
from bert_tf.text.sources import TextOptions, file_chunks
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.launch import Ended
from tests.script_case import FolderCase, printed

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text", "dogs"]
TEXT = "\n".join(
    f"The {number}th sentence of a text about cats and dogs, and of what they eat."
    for number in range(400)
)


class ChooseTest(tf.test.TestCase):
    def test_the_largest_that_sees_20_tokens_per_weight(self):
        paces = [
            Pace(
                size=size,
                num_weights=n,
                tokens_per_second=pace,
                memory_bytes=0.0,
                learning_rate=1.0,
            )
            for size, n, pace in (("tiny", 10, 5.0), ("mini", 50, 2.0))
        ]
        # 200 and 1,000 tokens are enough.
        for seconds, size in ((39, "tiny"), (499, "tiny"), (500, "mini"), (1, "tiny")):
            self.assertEqual(choose(paces, seconds).size, size)


class PlanCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.text = self.write("text.txt", TEXT)

    def plan(self, *more, hours=1.0):
        return printed(
            plan,
            f"--input_file={self.text}",
            f"--output_dir={self.path('out')}",
            f"--hours={hours:g}",
            *more,
        )


class PlanTest(PlanCase):
    """With commands that write what the real ones would."""

    def setUp(self):
        super().setUp()
        self.ran = []
        self.ends = {}  # of sizes that fail
        self.unknown = 90  # of 9,600 tokens
        self.drops = False
        self.bytes_per_second = 1e9
        self.rates = {"tiny": 10_000.0, "mini": 3_000.0, "small": 100.0}
        for module in (plan, plan_measurements):
            self.enterContext(mock.patch.object(module, "run_child", self.fake_run))
        self.config = BertConfig.from_size("tiny")
        self.released = types.SimpleNamespace(
            weights=["cls/predictions/output_bias"], require_config=lambda: self.config
        )
        opened = mock.patch.object(source, "open_source", return_value=self.released)
        self.enterContext(opened)

    def fake_run(self, arguments, shown):
        module, *flags = arguments[2:]
        cli.parse(importlib.import_module(module).run, flags)  # as the command would
        values = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
        self.ran.append((module.rpartition(".")[2], values))
        if (ended := self.ends.get(values.get("bert_size"))) is not None:
            return ended
        if "output_file" in values:
            os.makedirs(os.path.dirname(values["output_file"]), exist_ok=True)
            with open(values["output_file"], "w") as file:
                file.write("\n".join(VOCABULARY))
            report = {"read": {"tokens": 9_600}, "unknown_tokens": self.unknown}
            report["dropped"] = {"a": 2, "tokens of a": 600} if self.drops else {}
            shards = [{"num_bytes": 2_000_000}]
            manifest = {"report": report, "shards": shards, "vocab_sha256": "a"}
            with open(values["output_file"] + ".manifest.json", "w") as file:
                json.dump(manifest, file)
        elif "output_dir" in values:
            os.makedirs(values["output_dir"], exist_ok=True)
            size = values.get("bert_size", "tiny")
            config = BertConfig.from_size(size, vocab_size=8_000)
            with open(os.path.join(values["output_dir"], "bert_config.json"), "w") as f:
                f.write(config.to_json_string())
            path = os.path.join(values["output_dir"], "metrics.jsonl")
            with open(path, "w") as file:
                rate = self.rates[size]
                print(json.dumps({"tokens_per_second": rate}), file=file)
            if "do_eval" in values:
                path = os.path.join(values["output_dir"], "eval_results.txt")
                with open(path, "w") as file:
                    file.write("bits_per_byte = 2.4\nunigram_bits_per_byte = 2.9\n")
        seconds = 1.0
        if "output_file" in values and "input_file" in values:
            seconds += os.path.getsize(values["input_file"]) / self.bytes_per_second
        return Ended(code=0, output="", seconds=seconds, peak_bytes=1_540_000_000)

    def test_the_time_for_the_records(self):
        self.bytes_per_second = 100.0
        self.text = self.write("text.txt", "\n".join(["a text"] * 1714))
        packed = gzip.compress(pathlib.Path(self.text).read_bytes())

        def minutes(name, *more):
            shown = self.plan(f"--output_dir={self.path(name)}", *more)
            return float(re.search(r"Time: ([\d.]+) minutes", shown)[1])

        # 12 kB take 120 seconds, and a seventh less without the first eighth, 16 with
        # what starting takes. So it is 136 for the vocabulary, and for the records.
        one = "--num_workers=1"
        self.assertEqual(minutes("one", one), 4.5)
        held_out = f"--eval_file={self.write('held_out.txt', 'a text')}"
        self.assertEqual(minutes("held_out", one, held_out), 4.8)
        four = "--num_workers=4"
        with mock.patch.object(sources, "_CHUNK_BYTES", 1000):
            self.assertEqual(minutes("four", four), 1.5)  # 2 (16 + 120 / 4)
            # As many cores help no file that one core reads.
            self.text = self.write("text.gz", packed)
            self.assertEqual(minutes("packed", four), 4.5)

    def test_the_size_its_reasons_and_the_commands(self):
        shown = self.plan(hours=3.0)
        # 400 sentences of 15 words.
        self.assertIn(
            "about 6,000 words between spaces and 9,600 tokens (1.60 per word)", shown
        )
        # 10,000 tokens a second for 3 hours are 71 per weight of a tiny model, and
        # 3,000 are 6 per weight of a mini one: no larger one is tried.
        sizes = [v["bert_size"] for _, v in self.ran if "bert_size" in v]
        self.assertEqual(sizes, ["tiny", "mini"])
        self.assertRegex(
            shown, r"\| tiny +\| +1,511,360 \| +10,000 \| +1\.5 \| +71.* < \|"
        )
        self.assertRegex(shown, r"\| mini +\| +5,413,440 \| +3,000 \| +1\.5 \| +6\.0 ")
        self.assertRegex(shown, r"The text is too short .* 0\.0107 hours are 40 passes")
        self.assertNotIn("[UNK]", shown)
        self.assertNotIn("hours are too few", shown)
        # reference_curves.json ends with 18.8 M tokens; 108 M are planned. There the
        # model has 2.0601 and the unigrams 2.9341 bits per byte. Here three of the 17
        # tokens of a line are known, of 1, 4 and 4 bytes: log2(17) / 3 = 1.36.
        self.assertRegex(
            shown,
            r"To expect: 0\.96 or fewer bits .* have 1\.36: .* 18\.8 M tokens",
        )
        self.assertIn("--bert_size=tiny \\\n", shown)
        self.assertRegex(shown, r"--max_train_hours=(2\.99\d|3\.000)\n")
        # Nothing is measured twice.
        count = len(self.ran)
        self.assertEqual(self.plan(hours=3.0), shown)
        self.assertLen(self.ran, count)

    def test_too_few_hours(self):
        shown = self.plan(hours=0.5)
        # 20 tokens for each of 1,511,360 weights, at 10,000 per second.
        self.assertIn(
            "The hours are too few for a model from scratch: 0.8 would show", shown
        )
        # 1.8 M tokens are before the first value of the reference, at 1.88 M: 2.559.
        shown = self.plan(hours=0.05)
        self.assertRegex(shown, r"To expect: 1\.19 or more bits .* 1\.9 M tokens")

    def test_go_runs_the_commands_in_order(self):
        held_out = self.write("held_out.txt", TEXT.upper())
        self.plan("--go", f"--eval_file={held_out}", hours=3.0)
        *_, learn, create, other, train = self.ran
        self.assertEqual(learn[0], "learn_vocabulary")
        self.assertEqual(learn[1]["output_file"], self.path("out", "vocab.txt"))
        self.assertEqual(create[0], "create_pretraining_data")
        self.assertEqual(create[1]["input_file"], self.text)
        self.assertEqual(other[1]["input_file"], held_out)
        self.assertEqual((create[1]["pairs"], other[1]["pairs"]), ("none", "none"))
        self.assertEqual(train[0], "run_pretraining")
        self.assertEqual(train[1]["eval_input_file"], other[1]["output_file"])
        self.assertEqual(train[1]["output_dir"], self.path("out", "model"))
        self.assertEqual(
            [train[1][name] for name in ("recipe", "bert_size", "learning_rate")],
            ["budget", "tiny", "0.003"],
        )
        # As it was measured.
        measured = next(values for name, values in self.ran if name == train[0])
        for name in ("recipe", "bert_size"):
            self.assertEqual(measured[name], train[1][name])

    def test_how_the_text_is_read_reaches_the_commands(self):
        rows = [json.dumps({"body": line}) for line in TEXT.splitlines()]
        self.text = self.write("text.jsonl", "\n".join(rows))
        flags_of_text = ("--text_field=body", "--split_sentences=False")
        other = self.write("other.jsonl", "\n".join(rows[::-1]))
        self.plan("--go", *flags_of_text, f"--eval_file={other}", hours=3.0)
        *_, (learn, learned), (_, created), (_, held_out), _ = self.ran
        self.assertEqual(learn, "learn_vocabulary")
        for values in (learned, created, held_out):
            self.assertEqual(values["text_field"], "body")
        for values in (learned, created):
            self.assertEqual(values["input_file"], self.text)
        self.assertEqual(held_out["input_file"], other)
        self.assertEqual(created["split_sentences"], "False")
        # The sample is plain text.
        (_, learned), (_, created), *_ = self.ran
        for values in (learned, created):
            self.assertEqual(values["input_file"][-4:], ".txt")
            self.assertNotIn("text_field", values)

    def test_a_dataset(self):
        chunks = file_chunks(
            TextOptions(input_file=self.text), self.text, "input_file", written_files
        )
        self.text = None
        with mock.patch.object(plan_measurements, "text_chunks", return_value=chunks):
            shown = printed(
                plan,
                *("--tfds_name=wiki", "--tfds_split=test", "--hours=1", "--go"),
                f"--eval_file={self.write('held_out.txt', TEXT)}",
                f"--output_dir={self.path('out')}",
            )
        self.assertIn("about 6,000 words", shown)
        *_, learn, (_, created), (_, held_out), _ = self.ran
        for values in (learn[1], created):
            self.assertEqual(
                (values["tfds_name"], values["tfds_split"]), ("wiki", "test")
            )
            self.assertNotIn("input_file", values)
        self.assertNotIn("tfds_name", held_out)

    def test_the_unigrams_are_those_of_the_held_out_text(self):
        held_out = self.write("held_out.txt", "a text\n" * 50)
        shown = self.plan(f"--eval_file={held_out}", hours=3.0)
        # "a" and "text" are each one of the 17 tokens of a line for training:
        # 2 log2(17) bits for 5 bytes.
        self.assertIn("where the unigrams have 1.63:", shown)

    def test_new_words_for_a_checkpoint(self):
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        model = f"--init_checkpoint={self.path('released')}"
        shown = self.plan(model, hours=3.0)
        # 1.6 tokens per word are many.
        self.assertIn("cuts a word into 1.60 tokens. `num_new_tokens=1000` adds", shown)
        self.assertRegex(shown, "fewer bits .* now, 2.40, and than the unigrams, 2.90")
        evaluated = self.ran[-1][1]
        self.assertEqual(evaluated["init_checkpoint"], self.path("released"))
        self.assertNotIn("do_train", evaluated)
        self.assertIn(f"--vocab_file={self.path('released', 'vocab.txt')}", shown)
        shown = self.plan(model, "--num_new_tokens=50", "--go", hours=3.0)
        self.assertNotIn("num_new_tokens=1000", shown)
        # Records of two vocabularies are not in one folder.
        written = [values.get("output_file") for _, values in self.ran]
        for folder in ("sample", "sample_50"):
            self.assertIn(self.path("out", folder, "text.tfrecord"), written)
        extend, create, train = self.ran[-3:]
        self.assertEqual(extend[0], "extend_vocabulary")
        self.assertEqual(extend[1]["num_new_tokens"], "50")
        # The sample may support fewer than the text.
        self.assertEqual(extend[1]["fewer_tokens"], "True")
        self.assertEqual(extend[1]["output_file"], self.path("out", "vocab.txt"))
        self.assertEqual(create[1]["vocab_file"], self.path("out", "vocab.txt"))
        self.assertEqual(train[1]["init_checkpoint"], self.path("released"))
        self.assertNotIn("bert_size", train[1])
        self.assertEqual((train[1]["recipe"], create[1]["pairs"]), ("budget", "none"))
        self.assertEqual(train[1]["learning_rate"], "0.001")  # of `tiny`
        with self.assertRaisesRegex(flags.Error, "needs --init_checkpoint"):
            self.plan("--num_new_tokens=50")

    def test_the_casing_is_the_checkpoints(self):
        self.write("released/tokenizer_config.json", {"do_lower_case": False})
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        # Only the vocabulary says it of the other one.
        self.write("cased/vocab.txt", "\n".join([*VOCABULARY, "Dogs"]))
        for name in ("released", "cased"):
            self.ran.clear()
            model = f"--init_checkpoint={self.path(name)}"
            self.plan(model, f"--output_dir={self.path('of_' + name)}")
            self.assertEqual(self.ran[0][0], "create_pretraining_data")
            self.assertEqual(self.ran[0][1]["do_lower_case"], "False")

    def test_a_checkpoint_without_a_vocab_txt(self):
        os.makedirs(self.path("released"))
        write_tokenizer_json(self.path("released"), Vocabulary(VOCABULARY), True)
        model = f"--init_checkpoint={self.path('released')}"
        shown = self.plan(model)
        copy = "checkpoint_vocab.txt"
        self.assertIn(f"--vocab_file={self.path('out', copy)}", shown)
        self.assertEqual(self.read("out", copy).split(), VOCABULARY)
        # It is not taken for one with new words.
        self.ran.clear()
        self.plan(model, "--num_new_tokens=50", "--go", hours=3.0)
        names = [name for name, _ in self.ran]
        self.assertEqual(
            names[-3:],
            ["extend_vocabulary", "create_pretraining_data", "run_pretraining"],
        )

    def test_a_checkpoint_without_a_masked_lm(self):
        self.released.weights = ["bert/pooler/dense/bias"]
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        shown = self.plan(f"--init_checkpoint={self.path('released')}")
        self.assertIn("has no masked LM: the training begins with a new one", shown)
        self.assertNotIn("To expect", shown)
        self.assertNotIn("do_eval", self.ran[-1][1])

    def test_a_plan_made_again_replaces_its_sample(self):
        self.plan()
        self.ran.clear()
        of_before = self.write("out/sample/scores/vocab.txt", "of the other sample")
        self.plan("--split_sentences=True")
        self.assertFalse(os.path.exists(of_before))
        names = [name for name, _ in self.ran]
        self.assertEqual(names, ["learn_vocabulary"] + 2 * ["create_pretraining_data"])

    def test_a_segmenter_and_that_of_a_checkpoint(self):
        self.plan("--segmenter=icu", hours=3.0)
        (learn, learned), (create, created), *_ = self.ran
        self.assertEqual(
            (learn, create), ("learn_vocabulary", "create_pretraining_data")
        )
        self.assertEqual((learned["segmenter"], created["segmenter"]), ("icu", "icu"))
        self.assertIn("sample_icu", learned["output_file"])
        self.ran.clear()
        self.write("released/tokenizer_config.json", {"segmenter": "icu"})
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        released, other = self.path("released"), self.path("other")
        self.plan(f"--init_checkpoint={released}", f"--output_dir={other}")
        self.assertEqual(self.ran[0][1]["segmenter"], "icu")

    def test_a_text_without_spaces(self):
        self.text = self.write("text.txt", TEXT.replace(" ", ""))
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        model = f"--init_checkpoint={self.path('released')}"
        # No words are counted that another vocabulary would have.
        self.assertNotRegex(self.plan(model), "num_new_tokens|segmenter")
        self.text = self.write("thai.txt", "\n".join(["ภาษาไทยเป็นภาษา"] * 400))
        thai = f"--output_dir={self.path('thai')}"
        self.assertIn("`segmenter=icu` separates words", self.plan(model, thai))
        shown = self.plan(model, thai, "--segmenter=icu")
        # Four words in each line.
        self.assertIn("about 1,600 words and 9,600 tokens (6.00 per", shown)
        self.assertNotRegex(shown, "num_new_tokens|`segmenter")
        self.plan(model, thai, "--segmenter=icu", "--num_new_tokens=9", "--go")
        name, values = self.ran[-3]
        self.assertEqual((name, values["segmenter"]), ("extend_vocabulary", "icu"))

    def test_a_checkpoint_of_short_sequences(self):
        self.config = BertConfig.from_size("tiny", max_position_embeddings=32)
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        self.plan(f"--init_checkpoint={self.path('released')}")
        created = self.ran[0][1]
        self.assertEqual(
            (created["max_seq_length"], created["max_predictions_per_seq"]), ("32", "5")
        )

    def test_a_checkpoint_for_long_texts(self):
        self.config = BertConfig.from_size(
            "tiny", max_position_embeddings=1024, attention_window=32
        )
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        self.plan(f"--init_checkpoint={self.path('released')}")
        self.assertEqual(self.ran[0][1]["max_seq_length"], "1024")

    def test_a_size_that_the_memory_is_not_enough_for(self):
        for code, output, said in (
            (-9, "", "mini: bert_tf.run_pretraining .* -9: it was killed, as where"),
            (2, "a\nE: Memory is short\n", "mini: .* with 2: E: Memory is short"),
        ):
            self.ends["mini"] = Ended(code, output, seconds=1.0, peak_bytes=0)
            output_dir = f"--output_dir={self.path(str(code))}"
            shown = self.plan(output_dir, hours=90.0)
            self.assertRegex(shown, f"Left out: {said}")
            self.assertIn("--bert_size=tiny", shown)
            # The memory may be there another time, but not for a model that is begun.
            self.plan(output_dir, "--go", hours=90.0)
            del self.ends["mini"]
            self.ran.clear()
            shutil.rmtree(self.path(str(code), "sample"))  # its work is done
            shown = self.plan(output_dir, hours=90.0)
            self.assertIn("--bert_size=tiny", shown)
            self.assertEqual(self.ran, [])
        self.assertIn("--bert_size=mini", self.plan(hours=90.0))
        self.ends["tiny"] = Ended(2, "E: no", seconds=1.0, peak_bytes=0)
        with self.assertRaisesRegex(InputError, "ended with 2: E: no"):
            self.plan(f"--output_dir={self.path('none')}")

    def test_a_vocabulary_of_other_text(self):
        self.unknown = 4_800
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        shown = self.plan(f"--init_checkpoint={self.path('released')}")
        self.assertIn("50.0% of the tokens are [UNK]", shown)

    def test_the_checkpoints_score_of_held_out_text(self):
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        held_out = self.write("held_out.txt", "cats eat\n" * 7)
        for number, more in enumerate(([], ["--num_new_tokens=50"])):
            shown = self.plan(
                f"--init_checkpoint={self.path('released')}",
                f"--eval_file={held_out}",
                f"--output_dir={self.path(str(number))}",
                *more,
            )
            self.assertIn("fewer bits per byte of the held-out text than", shown)
            (_, created), (_, evaluated) = self.ran[-2:]
            self.assertEqual(created["output_file"], evaluated["input_file"])
            text = pathlib.Path(created["input_file"]).read_text()
            self.assertEqual(text, "cats eat\n" * 7)
            used = self.path(str(number), "sample_50", "vocab.txt")
            if not more:
                used = self.path("released", "vocab.txt")
            self.assertEqual(created["vocab_file"], used)

    def test_duplicates(self):
        self.assertIn("and 9,600 tokens (1.60", self.plan())
        self.ran.clear()
        self.drops = True
        shown = self.plan("--deduplicate=documents", "--go", hours=3.0)
        self.assertIn("and 9,000 tokens (1.50", shown)
        created = [v for name, v in self.ran if name == "create_pretraining_data"]
        self.assertEqual({v["deduplicate"] for v in created}, {"documents"})

    def test_a_vocabulary_that_is_learned_is_of_its_text(self):
        self.plan("--go", hours=3.0)
        written = self.read("text.txt")
        self.plan("--num_workers=3", hours=4.0)
        for change, more in (
            (lambda: None, "--language=de"),
            (lambda: None, "--deduplicate=documents"),
            (lambda: self.write("text.txt", written + "more\n"), "--num_workers=1"),
        ):
            change()
            with self.assertRaisesRegex(
                InputError, "vocab.txt is made of other text, or"
            ):
                self.plan(more, hours=3.0)
        self.write("text.txt", written)
        self.plan(hours=3.0)
        # The text can be mended as long as no vocabulary is learned.
        os.remove(self.path("out", "vocab.txt"))
        shutil.rmtree(self.path("out", "records"))
        self.write("text.txt", written + "more\n")
        self.plan("--go", hours=3.0)
        with self.assertRaisesRegex(InputError, "vocab.txt is made of other"):
            self.write("text.txt", written)
            self.plan(hours=3.0)

    def test_what_is_made_for_a_checkpoint_is_of_its_text(self):
        self.write("released/vocab.txt", "\n".join(VOCABULARY))
        model = f"--init_checkpoint={self.path('released')}"
        written = self.read("text.txt")
        for number, words in enumerate(((), ("--num_new_tokens=50",))):
            folder = f"--output_dir={self.path(str(number))}"
            self.plan(model, folder, "--num_new_tokens=40")  # only asked
            self.plan(model, folder, *words, "--go")
            self.plan(model, folder, *words, hours=2.0)
            self.write("text.txt", written + "more\n")
            for text, more in (("more\n", words), ("", ("--num_new_tokens=40",))):
                self.write("text.txt", written + text)
                name = "vocab.txt" if words else "text.tfrecord.manifest.json"
                with self.assertRaisesRegex(
                    InputError, f"{name} is made of other text"
                ):
                    self.plan(model, folder, *more)
            self.write("text.txt", written)
            self.plan(model, folder, *words, hours=2.0)

    def test_a_command_that_was_given_bad_input(self):
        for code, said in ((2, "2. When that is mended, the same"), (1, "1. The same")):
            ended = Ended(code=code, output="", seconds=1.0, peak_bytes=0)
            with (
                mock.patch.object(plan, "run_child", return_value=ended),
                self.assertRaisesRegex(InputError, said),
            ):
                self.plan("--go", f"--output_dir={self.path(str(code))}")

    def test_a_text_that_cannot_be_read_keeps_no_folder(self):
        self.text, there = self.write("latin.txt", b"caf\xe9\n"), self.text
        with self.assertRaisesRegex(InputError, "latin.txt"):
            self.plan()
        self.text = there
        held_out = self.write("held_out.txt", b"caf\xe9\n")
        with self.assertRaisesRegex(InputError, "held_out.txt"):
            self.plan(f"--eval_file={held_out}")
        blank = self.write("blank.txt", "\n \n")
        with self.assertRaisesRegex(InputError, "`eval_file=.*blank.txt`: it has no"):
            self.plan(f"--eval_file={blank}")
        self.text = blank
        with self.assertRaisesRegex(InputError, "`input_file=.*blank.txt`: it has no"):
            self.plan()
        self.text = there
        self.assertEqual(self.ran, [])
        self.assertIn("To expect", self.plan())

    def test_what_is_refused(self):
        folder = os.path.dirname(self.text)
        with self.assertRaisesRegex(flags.Error, "is in a folder of --input_file"):
            self.plan(f"--input_file={folder}")
        self.plan()
        with self.assertRaisesRegex(InputError, "holds a plan with other settings"):
            self.plan("--do_lower_case=False")
        first, self.text = self.text, self.write("other.txt", TEXT)
        other = rf"other settings: `input_file={first}` there, {self.text} here\. Give"
        go_on = "folder, where `init_checkpoint=.*/model` continues this plan's model"
        with self.assertRaisesRegex(InputError, f"{other} another {go_on}"):
            self.plan()

        self.text = self.path("text.txt")
        copy = self.write("copy.txt", TEXT)
        for path in (self.text, os.path.join(folder, ".", "text.txt"), copy):
            with self.assertRaisesRegex(InputError, ".txt is in `input_file` too"):
                self.plan(f"--eval_file={path}")
        failed = Ended(code=2, output="a\nreason\n", seconds=1.0, peak_bytes=0)
        with (
            mock.patch.object(plan_measurements, "run_child", return_value=failed),
            self.assertRaisesRegex(InputError, "ended with 2: reason"),
        ):
            printed(
                plan,
                f"--input_file={self.text}",
                f"--output_dir={self.path('fails')}",
                "--hours=1",
            )


class RealPlanTest(PlanCase):
    @pytest.mark.slow
    def test_a_plan_that_is_carried_out(self):
        words = [
            "cats",
            "dogs",
            "eat",
            "sleep",
            "run",
            "under",
            "over",
            "many",
            "small",
            "white",
            "table",
        ]
        lines = [
            " ".join(
                words[(number * 7 + place * 3) % len(words)] for place in range(12)
            )
            for number in range(3000)
        ]
        self.text = self.write("text.txt", "\n".join(lines))
        self.plan("--go", hours=0.02)
        results = self.read("out", "model", "eval_results.txt")
        self.assertIn("masked_lm_loss", results)
        self.assertRegex(
            self.read("out", "model", "README.md"), r"\| hours +\| +0\.0\d \|"
        )


if __name__ == "__main__":
    tf.test.main()
