"""Our reader and writer of safetensors against the format's own package."""

import json
import os

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from bert_tf.conversion.safetensors_files import read_tensors, write_tensors
from bert_tf.conversion.weights import Tensor
from bert_tf.errors import InputError

ARRAYS = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "a.bias": np.array([np.nan, -0.0, np.inf], np.float32),
    "empty": np.zeros((0, 3), np.float32),
}


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


class SafetensorsFilesTest(tf.test.TestCase):
    def path(self, content=None):
        path = os.path.join(self.get_temp_dir(), "model.safetensors")
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def problem(self, function, *arguments):
        with self.assertRaises(InputError) as caught:
            function(*arguments)
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        self.assertIn(self.path(), message)
        return message

    def test_reads_what_the_package_wrote(self):
        safetensors.numpy.save_file(ARRAYS, self.path(), metadata={"format": "pt"})
        tensors = read_tensors(self.path())
        self.assertEqual(set(tensors), set(ARRAYS))
        for name, array in ARRAYS.items():
            self.assertEqual(tensors[name].shape, array.shape)
            read = tensors[name].read()
            self.assertEqual(read.dtype, np.float32)
            self.assertEqual(read.tobytes(), array.tobytes())

    def test_the_package_reads_what_was_written(self):
        write_tensors(
            self.path(),
            {
                name: Tensor(array.shape, lambda array=array: array)
                for name, array in ARRAYS.items()
            },
        )
        arrays = safetensors.numpy.load_file(self.path())
        self.assertEqual(set(arrays), set(ARRAYS))
        for name, array in ARRAYS.items():
            self.assertEqual(arrays[name].tobytes(), array.tobytes())
        with safetensors.safe_open(self.path(), "np") as opened:
            self.assertEqual(opened.metadata(), {"format": "pt"})
        self.assertEqual(os.listdir(self.get_temp_dir()), ["model.safetensors"])

    def test_a_transposed_view_is_written_in_its_own_order(self):
        array = ARRAYS["b.weight"].T
        write_tensors(self.path(), {"a": Tensor((3, 2), lambda: array)})
        self.assertAllEqual(safetensors.numpy.load_file(self.path())["a"], array)

    def test_half_precision_becomes_float32_exactly(self):
        # 1, -2, the smallest number of each kind, the greatest, infinity.
        halves = np.array([0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00], "<u2")
        brains = np.array([0x3F80, 0xC000, 0x0001, 0x7F7F, 0x7F80], "<u2")
        header = {
            "half": entry("F16", [5], [0, 10]),
            "brain": entry("BF16", [5], [10, 20]),
        }
        self.path(file_of(header, halves.tobytes() + brains.tobytes()))
        tensors = read_tensors(self.path())
        half, brain = tensors["half"].read(), tensors["brain"].read()
        self.assertEqual((half.dtype, brain.dtype), (np.float32, np.float32))
        self.assertAllEqual(half, [1, -2, 2.0**-24, 65504, np.inf])
        self.assertAllEqual(brain, [1, -2, 2.0**-133, (2 - 2.0**-7) * 2.0**127, np.inf])

    def test_other_numbers_are_refused_only_where_they_are_asked_for(self):
        arrays = {"positions": np.arange(4), "a": np.ones(2, np.float64)}
        safetensors.numpy.save_file(arrays, self.path())
        tensors = read_tensors(self.path())
        self.assertEqual(tensors["positions"].shape, (4,))
        self.assertIn(
            "positions is of type I64", self.problem(tensors["positions"].read)
        )
        self.assertIn("a is of type F64", self.problem(tensors["a"].read))

    def test_a_file_cut_anywhere(self):
        safetensors.numpy.save_file(ARRAYS, self.path())
        with open(self.path(), "rb") as file:
            whole = file.read()
        for length in range(len(whole)):
            message = self.problem(read_tensors, self.path(whole[:length]))
            self.assertIn("damaged or no safetensors file", message)
        self.problem(read_tensors, self.path(whole + b"\0"))

    def test_headers_that_lie(self):
        two = {"a": entry(), "b": entry(offsets=[4, 12])}
        for content in (
            b"no safetensors file at all, but long enough to have a length",
            file_of(b"\xff\xfe"),
            file_of(b"{"),
            file_of(b"[" * 200_000),
            file_of([1]),
            file_of({"a": 1}, bytes(8)),
            file_of({"a": {"dtype": "F32"}}, bytes(8)),
            file_of({"a": entry(dtype=[])}, bytes(8)),
            file_of({"a": entry(shape=[-2])}, bytes(8)),
            file_of({"a": entry(shape=["x"])}, bytes(8)),
            file_of({"a": entry(shape=[2.0])}, bytes(8)),
            file_of({"a": entry(shape=[3])}, bytes(8)),
            file_of({"a": entry(offsets=[8, 0])}, bytes(8)),
            file_of({"a": entry(offsets=[0])}, bytes(8)),
            file_of({"a": entry(offsets=[4, 12])}, bytes(12)),
            file_of(two, bytes(12)),
            (1 << 40).to_bytes(8, "little") + bytes(100),
        ):
            message = self.problem(read_tensors, self.path(content))
            self.assertIn("damaged or no safetensors file", message)

    def test_a_file_cut_after_it_was_opened(self):
        safetensors.numpy.save_file({"a": np.ones(9, np.float32)}, self.path())
        tensors = read_tensors(self.path())
        with open(self.path(), "rb+") as file:
            file.truncate(os.path.getsize(self.path()) - 1)
        self.assertIn("ends inside a", self.problem(tensors["a"].read))

    def test_no_file_and_a_folder(self):
        self.assertIn("No such file", self.problem(read_tensors, self.path()))
        os.mkdir(self.path())
        self.assertIn("a folder", self.problem(read_tensors, self.path()))

    def test_writing_that_fails_leaves_the_old_file_alone(self):
        def fails():
            raise InputError("cut")

        self.path(b"old")
        tensors = {
            "a": Tensor((2,), lambda: np.zeros(2, np.float32)),
            "b": Tensor((2,), fails),
        }
        with self.assertRaisesRegex(InputError, "cut"):
            write_tensors(self.path(), tensors)
        self.assertEqual(os.listdir(self.get_temp_dir()), ["model.safetensors"])
        with open(self.path(), "rb") as file:
            self.assertEqual(file.read(), b"old")


if __name__ == "__main__":
    tf.test.main()
