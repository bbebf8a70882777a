"""Small pieces of mathematics as one XLA kernel, where that pays.

On a CPU, TensorFlow runs a chain such as bias, GELU, product as one pass over memory an
operation. XLA makes one pass of it. Compiling a whole training step loses there (its
matrix products are slower than TensorFlow's), compiling such chains wins.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_enabled = True


def compiled(function: Function) -> Function:
    """The function, compiled by XLA where the backend is TensorFlow; else as it is.

    Inside of what XLA compiles already, and within `pieces_left_alone`, it is the
    identity.

    Args:
        function: a pure function of tensors in `keras.ops`; static arguments are bound
            beforehand.
    """
    compiled_function: Any = None

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        nonlocal compiled_function
        if not _is_on():
            return function(*args)
        if compiled_function is None:
            import tensorflow as tf

            compiled_function = tf.function(
                function, jit_compile=True, autograph=False
            )
        return compiled_function(*args)

    return call  # type: ignore[return-value]


@functools.cache
def xla_compiles_for_the_cpu() -> bool:
    """Whether it does here: the builds of TensorFlow for TPUs lack that compiler."""
    import tensorflow as tf

    # Those builds list a TPU's controller among the devices, be there a TPU or not.
    return not tf.config.list_physical_devices("TPU_SYSTEM")


def _is_on() -> bool:
    import keras

    return (
        _enabled
        and keras.backend.backend() == "tensorflow"
        and xla_compiles_for_the_cpu()
    )


@contextlib.contextmanager
def pieces_left_alone() -> Iterator[None]:
    """Within it, `compiled` is the identity: for what XLA compiles as a whole, TPUs."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before
