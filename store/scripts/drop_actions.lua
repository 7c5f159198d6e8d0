-- drop_actions: close open actions whose ends are in the log already.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  ids of the actions
-- Returns  number of actions that were open
-- Cost  O(a): a actions
-- Idempotent  a repeat finds none open
-- Log  not guarded: open actions stay in Redis
-- include: _audit.lua
local dropped = redis.call('HDEL', root .. ':pending', unpack(ARGV))
if dropped > 0 and redis.call('EXISTS', root) == 1 then change_approvals() end
return dropped
