"""The one exception that means: the user's input is wrong; this is how to mend it."""


class InputError(ValueError):
    """What a user gave (a file, a flag, a checkpoint) cannot be used.

    The message is one line: what is wrong, where (file and line, or flag), what to do.
    `bert_tf.cli` prints it and exits with 2; any other exception is a bug of ours and
    keeps its traceback.
    """
