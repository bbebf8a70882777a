"""The manifest: written, read back, found again, refused."""

import dataclasses
import json
import os

from bert_tf.base.errors import InputError
from bert_tf.records.manifest import (
    Manifest,
    Shard,
    SourceFile,
    find_finished,
    find_manifests,
    first_difference,
    manifest_path,
)
from tests.script_case import FolderCase

# SHA-256 of "abc": FIPS 180-2, appendix B.1.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

MANIFEST = Manifest(
    vocab_sha256="f00",
    vocab_size=30522,
    do_lower_case=True,
    max_seq_length=128,
    max_predictions_per_seq=20,
    masking="static",
    do_whole_word_mask=False,
    masked_lm_prob=0.15,
    short_seq_prob=0.1,
    dupe_factor=10,
    random_seed=12345,
    source_files=(SourceFile(path="a.txt", num_bytes=3, sha256=ABC),),
    shards=(
        Shard(name="x", num_records=2, num_bytes=5),
        Shard(name="y", num_records=1, num_bytes=4),
    ),
    complete=True,
)


class ManifestCase(FolderCase):
    def write(self, name, content=""):
        return super().write(name, content)

    def write_manifest(self, name, **changes):
        manifest = dataclasses.replace(MANIFEST, **changes)
        return self.write(name, manifest.to_json_string())


class ManifestTest(ManifestCase):
    def test_reads_what_it_writes(self):
        path = self.write_manifest("x.manifest.json")
        manifest = Manifest.from_json_file(path)
        self.assertEqual(manifest, MANIFEST)
        self.assertEqual(manifest.path, path)
        self.assertEqual(manifest.vocab_path, self.path("x.vocab.txt"))
        self.assertEqual(manifest.num_records, 3)
        self.assertEqual(
            manifest.records_by_path(), {self.path("x"): 2, self.path("y"): 1}
        )
        values = json.loads(MANIFEST.to_json_string())
        self.assertNotIn("path", values)
        self.assertEqual(values["format_version"], 1)
        self.assertEqual(
            values["shards"][1],
            {"name": "y", "num_records": 1, "num_bytes": 4, "random_seed": None},
        )

    def test_where_it_lies(self):
        for name, expected in (
            ("d/tf_examples.tfrecord", "d/tf_examples.tfrecord.manifest.json"),
            ("d/wiki-00000-of-00008", "d/wiki.manifest.json"),
            ("wiki-00003-of-00008.tfrecord", "wiki.manifest.json"),
            ("a-1-of-2", "a-1-of-2.manifest.json"),
        ):
            self.assertEqual(manifest_path([name, "other"]), expected)

    def test_refuses_what_is_no_manifest(self):
        values = json.loads(MANIFEST.to_json_string())
        shard = values["shards"][0]
        for content, message in (
            ('{\n"a": }', r":2: not valid JSON"),
            ("[]", "no `format_version`"),
            ("{}", "no `format_version`"),
            ('{"format_version": 1}', "Missing: complete, do_lower_case"),
            ({**values, "max_seq_len": 1}, "Unknown: max_seq_len"),
            ({**values, "format_version": 2}, "up to format version 1. Received: 2"),
            ({**values, "max_seq_length": True}, '"max_seq_length" must be an integer'),
            ({**values, "max_predictions_per_seq": 0}, "must be positive. Received: 0"),
            ({**values, "do_lower_case": 1}, '"do_lower_case" must be true or false'),
            ({**values, "masked_lm_prob": "x"}, '"masked_lm_prob" must be a number'),
            ({**values, "shards": {}}, '"shards" must be a list'),
            ({**values, "shards": [3]}, "shards: must be a JSON object. Received: 3"),
            ({**values, "shards": [{**shard, "name": 3}]}, '"name" must be a string'),
        ):
            if not isinstance(content, str):
                content = json.dumps(content)
            path = self.write("x.manifest.json", content)
            with self.assertRaisesRegex(InputError, f"x.manifest.json.*{message}"):
                Manifest.from_json_file(path)


class FindManifestsTest(ManifestCase):
    def test_from_any_file_of_the_set(self):
        self.write("x", "12345")
        self.write("y", "1234")
        path = self.write_manifest("x.manifest.json")
        for names in (["x"], ["y"], ["y", "x"]):
            found = find_manifests([self.path(name) for name in names])
            self.assertEqual([manifest.path for manifest in found], [path])

    def test_from_shards_and_of_several_sets(self):
        paths = []
        for name in ("p", "q"):
            shards = [f"{name}-0000{index}-of-00002" for index in range(2)]
            paths += [self.write(shard, "123") for shard in shards]
            self.write_manifest(
                f"{name}.manifest.json",
                shards=tuple(
                    Shard(name=shard, num_records=7, num_bytes=3) for shard in shards
                ),
            )
        found = find_manifests(paths)
        self.assertEqual(
            [manifest.path for manifest in found],
            [self.path("p.manifest.json"), self.path("q.manifest.json")],
        )
        self.assertEqual(list(found[1].records_by_path()), paths[2:])

    def test_relative_names_and_other_folders(self):
        self.write("one/x", "12345")
        self.write("two/y", "1234")
        self.write_manifest(
            "one/x.manifest.json",
            shards=(
                Shard(name="x", num_records=2, num_bytes=5),
                Shard(name="../two/y", num_records=1, num_bytes=4),
            ),
        )
        here = os.getcwd()
        os.chdir(self.path("one"))
        self.addCleanup(os.chdir, here)
        (found,) = find_manifests(["x", "../two/y"])
        self.assertEqual(found.records_by_path(), {"x": 2, "../two/y": 1})

    def test_refuses_a_replaced_file(self):
        self.write("x", "12345")
        self.write("y", "123")
        self.write_manifest("x.manifest.json")
        with self.assertRaisesRegex(InputError, "y must have 4 bytes.*Received: 3"):
            find_manifests([self.path("x"), self.path("y")])


class FindFinishedTest(ManifestCase):
    def setUp(self):
        super().setUp()
        self.outputs = [self.path("x"), self.path("y")]
        self.wanted = dataclasses.replace(MANIFEST, path=self.path("x.manifest.json"))

    def test_files_that_no_manifest_knows_are_refused(self):
        for name in ("y", "x.vocab.txt"):
            path = self.write(name, "precious")
            with self.assertRaisesRegex(InputError, f"{name} exists.*`overwrite`"):
                find_finished(self.wanted, self.outputs)
            os.remove(path)

    def test_each_setting_counts(self):
        other = {
            "vocab_sha256": "ba2",
            "do_lower_case": False,
            "max_seq_length": 1,
            "max_predictions_per_seq": 1,
            "masking": "dynamic",
            "do_whole_word_mask": True,
            "masked_lm_prob": 0.5,
            "short_seq_prob": 0.5,
            "dupe_factor": 1,
            "random_seed": 1,
            "shards": MANIFEST.shards[:1],
            "source_files": (SourceFile(path="a.txt", num_bytes=3, sha256="0"),),
        }
        for name, value in other.items():
            changed = dataclasses.replace(MANIFEST, **{name: value})
            self.assertIsNotNone(first_difference(changed, MANIFEST), name)

    def test_places_of_input_and_counts_do_not_count(self):
        same = dataclasses.replace(
            MANIFEST,
            source_files=(SourceFile(path="b.txt", num_bytes=3, sha256=ABC),),
            shards=tuple(Shard(name=name, num_records=0, num_bytes=0) for name in "xy"),
            complete=False,
        )
        self.assertIsNone(first_difference(same, MANIFEST))
