import dataclasses

import numpy as np

import bert_tf
from bert_tf.addons.methods.long_texts import lengthened
from bert_tf.base.errors import InputError
from bert_tf.base.shared_options import LongTextOptions
from bert_tf.conversion.loading import refuse_other_function
from bert_tf.conversion.source import open_source
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.tasks.pretraining_options import PretrainingOptions
from bert_tf.tasks.run_options import FineTuningOptions
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.tagging.tagging_options import TaggingOptions
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.run_classifier_test import RunClassifierTestCase
from tests.script_case import FolderCase
from tests.training import toy

LONG = dataclasses.replace(
    toy.CONFIG, max_position_embeddings=40, attention_window=40, global_tokens=2
)


class LengthenedTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.encoder = BertEncoder(toy.CONFIG)
        randomize(self.encoder)
        self.source = open_source(runs.save(self.path("short"), self.encoder))

    def test_a_window_over_all_changes_no_output(self):
        with self.assertLogs() as logs:
            source = lengthened(self.source, LONG)
        self.assertIn("the 16 rows", "".join(logs.output))
        self.assertIn("Projections of global tokens", "".join(logs.output))
        long = bert_tf.load_encoder(source)
        self.assertEqual(long.bert_config, LONG)
        ids = np.random.default_rng(1).integers(1, toy.V, (3, 16))
        inputs = {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.arange(16) // 9 + 0 * ids,
        }
        found, expected = (
            one(inputs)["sequence_output"] for one in (long, self.encoder)
        )
        self.assertAllClose(found, expected, atol=2e-6)

    def test_rows_of_positions_are_repeated(self):
        name = "bert/embeddings/position_embeddings"
        old = self.source.weights[name]
        new = lengthened(self.source, LONG).weights[name]
        self.assertAllEqual(new, np.concatenate([old, old, old[:8]]))
        with self.assertRaisesRegex(InputError, "=15` must not be less than the 16"):
            lengthened(
                self.source, dataclasses.replace(toy.CONFIG, max_position_embeddings=15)
            )

    def test_a_window_is_not_lost(self):
        source = lengthened(self.source, LONG)
        wider = dataclasses.replace(LONG, attention_window=64)
        refuse_other_function(source, wider)
        refuse_other_function(self.source, LONG)
        with self.assertRaisesRegex(InputError, "attention_window=40; .* has None"):
            refuse_other_function(source, toy.CONFIG)

    def test_projections_that_no_token_uses_are_left_out(self):
        source = lengthened(self.source, LONG)
        without = lengthened(source, dataclasses.replace(LONG, global_tokens=None))
        self.assertEqual(
            without.weights.shapes.keys(), self.source.weights.shapes.keys()
        )

    def test_the_global_tokens_of_each_kind_of_task(self):
        long = dataclasses.replace(LONG, global_tokens=7)
        own = {"init_checkpoint": "c", "output_dir": "o", "do_train": True}
        files = {**own, "train_file": "t"}
        for options, expected in (
            (LongTextOptions(), 7),  # of exports: the model's own
            (FineTuningOptions(**own), 1),
            (SquadOptions(**files, max_query_length=30), 32),
            (TaggingOptions(**files), None),
            (PretrainingOptions(**own, input_file="i"), None),
        ):
            self.assertEqual(options.resized(long).global_tokens, expected)
        full = LongTextOptions().resized(toy.CONFIG)
        self.assertEqual(full, toy.CONFIG)
        with self.assertRaisesRegex(InputError, "one direction"):
            LongTextOptions(attention_window=3).resized(
                dataclasses.replace(toy.CONFIG, left_to_right=True)
            )


class LongRunTest(RunClassifierTestCase):
    def test_a_short_checkpoint_is_trained_on_long_texts(self):
        self.write_tsv(train=32)
        size = {"max_seq_length": 40, "pad": "max"}
        long = {"max_position_embeddings": 48, "attention_window": 5}
        checkpoint = self.pretrained()
        for name, parts in (("run", 1), ("parts", 2)):
            self.run_script(
                "--do_train",
                "--do_predict",
                output_dir=self.path(name),
                init_checkpoint=checkpoint,
                gradient_accumulation_steps=parts,
                **size,
                **long,
            )
        config = self.read_json("run", "bert_config.json")
        self.assertEqual({n: config[n] for n in long}, long)
        self.assertEqual(config["global_tokens"], 1)
        texts = [line.split("\t")[0] for line in self.read("data/test.tsv").split("\n")]
        model = bert_tf.load(self.path("run"))
        found = [list(one.probabilities.values()) for one in model.predict(texts[1:-1])]
        self.assertAllClose(found, self.table("run", "test_results.tsv"), atol=1e-5)
        # The same step, dropout too, from micro-batches: to rounding.
        whole, parts = (
            open_source(self.path(name)).weights for name in ("run", "parts")
        )
        for name in whole:
            self.assertAllClose(whole[name], parts[name], rtol=0, atol=1e-6, msg=name)
