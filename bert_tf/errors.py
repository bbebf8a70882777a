"""The one exception that means: the user's input is wrong; this is how to mend it."""


class InputError(ValueError):
    """What a user gave (a file, a flag, a checkpoint) cannot be used.

    The message is one line: what is wrong, where (file and line, or flag), what to do.
    `bert_tf.cli` prints it and exits with 2; any other exception is a bug of ours and
    keeps its traceback.
    """


class DivergedError(InputError):
    """Training came to numbers that are not finite.

    What is wrong are this run's settings, such as its learning rate; the same run again
    would end the same way, and one with other settings need not.
    """
