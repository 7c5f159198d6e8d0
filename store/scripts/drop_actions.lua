-- drop_actions: close open actions whose ends are in the log already.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  ids of the actions
-- Returns  number of actions that were open
-- Cost  O(a): a actions
-- Idempotent  a repeat finds none open
local root = KEYS[1]
return redis.call('HDEL', root .. ':pending', unpack(ARGV))
