-- end_copies: end the copies into an id that are made at present: no conversation comes of them.
-- KEYS  root of the conversation
-- ARGV  none
-- Returns  (fork:text sandbox:text)*: the sandbox whose agent server makes the same copy, "" none
-- Cost  O(c): c copies
-- Idempotent  a repeat finds them ended
-- include: _copies.lua
return end_copies()
