"""SIGTERM and SIGINT, heard between the steps."""

import signal


class Signals:
    """Hears SIGTERM and SIGINT while in use; the loop asks, saves and stops.

    Attributes:
        received: the signal's number; None as long as there was none.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Signals":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[number] = signal.signal(number, self._hear)
            except ValueError:  # not the main thread, as in some notebooks
                break
        return self

    def _hear(self, number: int, frame: object) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        self.received = number

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
