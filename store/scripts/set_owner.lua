-- set_owner: give a conversation to another owner; its audit says so.
-- KEYS  root of the conversation
-- ARGV  id_prefix:text of the request  time:text now, UTC with Z  actor:json who gives it, canonical
--       reason:json from whom to whom, canonical  rights:json of a person, as `_rights.lua` compares them; "" none
--       owner:text  before:text the owner that the actor has seen; "" nobody
-- Returns  "done"(state:log_state) | "other"(state:log_state): another owns it by now
--          | "changed"(state:log_state): the actor's right has changed | missing: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds the owner and the request that set it
-- Log  not guarded: neither owner nor audit is a part of the log
-- include: _audit.lua
-- include: _rights.lua
if not open_log(id_prefix) then return false end
if redis.call('HGET', root, 'owner_set') == id_prefix then return close_log('done', time) end
if have_changed(rights) then return close_log('changed', time) end
if (redis.call('HGET', root, 'owner') or '') ~= before then return close_log('other', time) end
redis.call('HSET', root, 'owner', owner, 'owner_set', id_prefix)
write_audit('owner_changed', {}, actor, reason, time)
change_approvals()
return close_log('done', time)
