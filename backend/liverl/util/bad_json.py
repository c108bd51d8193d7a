"""What decoding bytes may raise that are no JSON, or not the JSON that was expected."""

from __future__ import annotations

import msgspec

# ``liverl.util.decode`` raises only the first. msgspec itself raises UnicodeDecodeError for a text that is no UTF-8 (a
# damaged disk block, another encoding), and RecursionError for values that are nested too deeply.
BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
