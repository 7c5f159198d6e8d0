-- end_copies: end the unfinished copies into an id, so that they create no conversation.
-- KEYS  root of the conversation
-- ARGV  none
-- Returns  (fork:text sandbox:text)*: sandbox whose agent server makes its own copy, "" none
-- Cost  O(c): c copies
-- Idempotent  a repeat finds them ended
-- include: _copies.lua
return end_copies()
