"""The table of heads: what its rows refer to, and a row from outside."""

from unittest import mock

from absl.testing import absltest, parameterized

from bert_tf.conversion import names


class HeadsTest(parameterized.TestCase):
    @parameterized.parameters(*names.HEADS)
    def test_the_code_of_a_row_exists(self, name):
        head = names.HEADS[name]
        for field in ("model", "task", "text_model", "reader", "server", "onnx"):
            if getattr(head, field) is not None:
                self.assertTrue(callable(head.code(field)))
        if head.task is not None:
            self.assertEqual(head.code("task").head, name)

    def test_a_head_from_outside(self):
        row = names.Name("cls/mine/output_bias", "2", "mine.bias")
        with mock.patch.dict(names.HEADS):
            names.register(names.Head(name="mine", weights=(row,)))
            self.assertTrue(names.is_known(row.original))
            self.assertEqual(names.heads_of([row.original]), ["mine"])
            with self.assertRaisesRegex(ValueError, "must be new. Received: 'mine'"):
                names.register(names.Head(name="mine", weights=(row,)))
        self.assertFalse(names.is_known(row.original))


if __name__ == "__main__":
    absltest.main()
