import functools
import json
import os
import pathlib

from bert_tf.base.config import SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion import export
from bert_tf.conversion.adapter_files import (
    load_adapted_classifier,
    load_adapter,
    open_adapter,
    write_adapter,
)
from bert_tf.conversion.huggingface import read_tensors
from bert_tf.conversion.loading import (
    load_classifier,
    load_encoder,
    load_multiple_choice,
    load_span_predictor,
    load_tagger,
    load_weights,
)
from bert_tf.conversion.source import open_source
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.modeling.weight_names import is_added, weights_by_name
from tests.conversion import runs
from tests.modeling.examples import outputs_of, random_records, randomize, small_config
from tests.script_case import FolderCase

CONFIG = small_config(num_hidden_layers=1)
LABELS = ("yes", "no", "maybe")
RECORDS = random_records(CONFIG)


@functools.cache
def base_model():
    model = BertClassifier(CONFIG, 3)
    randomize(model, seed=1)
    return model


@functools.cache
def trained(**options):
    """A model as if trained: on the weights of the base, all that is new random."""
    model = BertClassifier(CONFIG, 3, **options)
    randomize(model)
    values = weights_by_name(base_model())
    for name, variable in weights_by_name(model).items():
        if name in values and not variable.trainable:
            variable.assign(values[name])
    return model


class AdapterFilesTestCase(FolderCase):
    def run_of(self, model, name="run"):
        """The folder of a run of a model with its weights as they are."""
        config = model.bert_config
        return runs.save(self.path(name), model, config=config, tokens=None)

    def assert_same_logits(self, model, other, **tolerance):
        actual, expected = (outputs_of(x, RECORDS)["logits"] for x in (model, other))
        self.assertAllClose(actual, expected, **({"rtol": 0, "atol": 0} | tolerance))

    def written(self, name="run", **options):
        kept = {"labels": LABELS, "problem_type": SINGLE_LABEL}
        return write_adapter(self.folder(name), trained(**options), **kept)


class LoadTest(AdapterFilesTestCase):
    def test_on_its_base_it_is_the_trained_model(self):
        several = {"lora_rank": 2, "layer_mixture": True, "train_pooler": True}
        for number, options in enumerate(({"adapter_size": 3}, several)):
            path = self.written(f"run{number}", **options)
            model, again = trained(**options), BertClassifier(CONFIG, 3, **options)
            base = self.run_of(base_model(), "base")
            load_weights(again, base, init_head=False)
            with self.assertNoLogs(level="WARNING"):
                names = load_adapter(again, path)
            expected = {k for k, v in weights_by_name(model).items() if v.trainable}
            self.assertEqual(set(names), expected)
            self.assert_same_logits(again, model)

    def test_the_classifier_of_both(self):
        path = self.written(lora_rank=2)
        again = load_adapted_classifier(self.run_of(base_model(), "base"), path)
        self.assert_same_logits(again, trained(lora_rank=2))
        self.assertEqual(again.problem_type, SINGLE_LABEL)
        other = BertClassifier(small_config(num_hidden_layers=2), 3)
        with self.assertRaisesRegex(InputError, "num_hidden_layers=1; this one has 2"):
            load_adapted_classifier(self.run_of(other, "other"), path)

    def test_what_is_in_the_files(self):
        path = self.written(lora_rank=2)
        stored = read_tensors(os.path.join(path, "adapter.safetensors"))
        shapes = {name: tensor.shape for name, tensor in stored.items()}
        expected = {"output_weights": (3, 24), "output_bias": (3,)}
        for part in ("query", "value"):
            scope = f"bert/encoder/layer_0/attention/self/{part}"
            expected[f"{scope}/lora_kernel_a"] = (24, 2)
            expected[f"{scope}/lora_kernel_b"] = (2, 24)
        self.assertEqual(shapes, expected)
        adapter = open_adapter(os.path.dirname(path))  # the run's folder does as well
        self.assertEqual(adapter.path, path)
        self.assertEqual(adapter.labels, LABELS)
        self.assertEqual(adapter.problem_type, SINGLE_LABEL)
        others = {"adapter_size": 0, "layer_mixture": False, "train_pooler": False}
        self.assertEqual(adapter.model, {"lora_rank": 2, **others})

    def test_what_does_not_fit_assigns_nothing(self):
        path = self.written(lora_rank=2)
        narrow = small_config(num_hidden_layers=1, hidden_size=12)
        for config, options, message in (
            (narrow, {"lora_rank": 2}, "with hidden_size=24; this one has 12"),
            (CONFIG, {"lora_rank": 3}, r"query/lora_kernel_a is \[24, 2\] there, \["),
            (CONFIG, {}, "lora_kernel_a is .* there, nothing here"),
            (CONFIG, {"adapter_size": 4}, "adapter/.* is not there"),
        ):
            model = BertClassifier(config, 3, **options)
            before = randomize(model)
            with self.assertRaisesRegex(InputError, message) as caught:
                load_adapter(model, path)
            self.assertNotIn("\n", str(caught.exception))
            for name, variable in weights_by_name(model).items():
                self.assertAllEqual(variable, before[name], name)

    def test_a_damaged_or_missing_one_is_one_line(self):
        path = self.written(lora_rank=2)
        description = os.path.join(path, "adapter.json")
        values = json.loads(pathlib.Path(description).read_text())
        for change, message in (
            ({"format_version": 2}, "not of format_version 1"),
            ({"labels": None}, '"labels" must be a list'),
            ({"model": {"lora_rank": "8"}}, '"lora_rank" must be an integer'),
            ({"model": {"lora_rank": None}}, '"lora_rank" must be an integer'),
            ({"model": {"train_pooler": 1}}, '"train_pooler" must be true or false'),
            ({"model": {"lora_rank": -1}}, "not negative. Received: -1 and 0"),
            ({"model": {"lora_rank": 2, "adapter_size": 3}}, "must be 0.*: 2 and 3"),
            ({"problem_type": "several"}, '"problem_type" must be one of.*several'),
        ):
            runs.write_json(values | change, description)
            with self.assertRaisesRegex(InputError, f"adapter.json: .*{message}"):
                open_adapter(path)
        runs.write_json(values | {"labels": []}, description)
        with self.assertRaisesRegex(InputError, "no classifier's.* names 0 labels"):
            load_adapted_classifier(self.run_of(base_model(), "base"), path)
        with self.assertRaisesRegex(InputError, "no adapter in this folder"):
            open_adapter(self.folder("empty"))


class RunTest(AdapterFilesTestCase):
    """A run's own checkpoints, read by all that reads checkpoints."""

    def test_lora_is_merged(self):
        model = trained(lora_rank=2)
        folder = self.run_of(model)
        self.assertFalse([k for k in open_source(folder).weights if is_added(k)])
        plain = load_classifier(folder)
        self.assertEmpty([v for v in plain.weights if "lora" in v.path])
        self.assert_same_logits(plain, model, atol=1e-5)
        # By hand: x W + x A B = x (W + A B).
        name = "bert/encoder/layer_0/attention/self/value/"
        own = {k: v.numpy().astype(float) for k, v in weights_by_name(model).items()}
        product = own[name + "lora_kernel_a"] @ own[name + "lora_kernel_b"]
        self.assertAllClose(
            open_source(folder).weights[name + "kernel"],
            own[name + "kernel"] + product,
            atol=1e-6,
        )

    def test_adapters_and_mixtures_stay_ours(self):
        model = trained(adapter_size=3, layer_mixture=True)
        folder = self.run_of(model)
        again = load_classifier(folder)
        self.assert_same_logits(again, model)
        encoded = outputs_of(load_encoder(folder), RECORDS)["pooled_output"]
        self.assertAllEqual(
            encoded, outputs_of(model.encoder, RECORDS)["pooled_output"]
        )
        for build, load in (
            (functools.partial(BertTagger, num_labels=2), load_tagger),
            (BertSpanPredictor, load_span_predictor),
            (BertMultipleChoice, load_multiple_choice),
        ):
            other = build(CONFIG, adapter_size=3, layer_mixture=True)
            randomize(other)
            again = load(self.run_of(other, load.__name__))
            for path, weight in weights_by_name(other).items():
                self.assertAllEqual(weights_by_name(again)[path], weight, path)
        source = export.completed(open_source(folder))
        reason = "trained with adapter_size and layer_mixture, which no"
        for write in (
            export.write_tf1,
            export.write_huggingface,
            export.write_kerashub,
        ):
            with self.assertRaisesRegex(InputError, reason):
                write(self.folder("written"), source)
        message = "trained with `adapter_size=3` `layer_mixture=True`; this model"
        with self.assertRaisesRegex(InputError, message):
            load_weights(BertClassifier(CONFIG, 3), folder)
