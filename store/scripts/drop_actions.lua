-- drop_actions: close open actions whose ends are in the log already.
-- KEYS  root of the conversation
-- ARGV  ids:text* of the actions
-- Returns  int: actions that were open
-- Cost  O(a): a actions
-- Idempotent  a repeat finds none open
-- Log  not guarded: open actions stay in Redis
-- include: _audit.lua
local dropped = redis.call('HDEL', root .. ':pending', unpack(ids))
if dropped > 0 and redis.call('EXISTS', root) == 1 then change_approvals() end
return dropped
