-- end_copies: end the copies into an id that are made at present: no conversation comes of them.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  none
-- Returns  {fork id, id of the sandbox whose agent server makes the same copy, empty for none, …}
-- Cost  O(c): c copies
-- Idempotent  a repeat finds them ended
-- include: _copies.lua
return end_copies()
