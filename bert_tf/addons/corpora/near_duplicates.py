"""Documents that are nearly the same: MinHash of their runs of tokens, in bands.

The similarity of two documents is the share of their runs of five tokens that are in
both (Jaccard's). A document has 112 minimal hashes, in 14 bands of 8; two documents
whose hashes of a band are all equal count as nearly the same, as in FineWeb (Penedo et
al. 2024, arXiv:2406.17557). At similarity s that happens with probability
1 - (1 - s^8)^14: 5 % at 0.5, 56 % at 0.7, 77 % at 0.75, 92 % at 0.8, 99.96 % at 0.9.

The hashes are rensa's, a library in Rust that makes them some sixty times as fast as
one in Python would.
"""

import hashlib
import importlib.util

import numpy as np

from bert_tf.base.errors import InputError

_RUN = 5
_BANDS, _ROWS = 14, 8
_SEED = 1
KEY_BYTES = 8
# The keys of all bands.
DIGEST_BYTES = _BANDS * KEY_BYTES


def require_hashes() -> None:
    """Raises InputError if the library of the hashes is not installed."""
    if importlib.util.find_spec("rensa") is None:
        raise InputError("`deduplicate=near` needs rensa: pip install 'bert-tf[near]'")


def digest(tokens: bytes | bytearray, token_bytes: int) -> bytes:
    """Returns the keys of a document's bands, from its ids."""
    from rensa import RMinHash

    size = _RUN * token_bytes
    last = max(len(tokens) - size, 0)
    hashes = RMinHash(num_perm=_BANDS * _ROWS, seed=_SEED)
    hashes.update([tokens[n : n + size] for n in range(0, last + 1, token_bytes)])
    bands = np.array(hashes.digest(), "<u4").reshape(_BANDS, _ROWS)
    return b"".join(
        hashlib.blake2b(band.tobytes(), digest_size=KEY_BYTES).digest()
        for band in bands
    )
