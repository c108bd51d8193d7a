"""What decoding bytes may raise that are no JSON, or not the JSON that was expected."""

from __future__ import annotations

import msgspec

# msgspec raises DecodeError for a wrong form or type, but UnicodeDecodeError for a string that is no UTF-8 (a damaged
# disk block, another encoding), and RecursionError for values that are nested too deeply.
BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
