"""How the inner loops of this folder are compiled.

They are Python functions on numpy arrays. numba compiles them at their first call and
keeps the machine code beside the source (or in the user's cache folder, where that
cannot be written), so that only the first run on a machine waits for it.
"""

import numba

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
