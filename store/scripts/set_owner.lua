-- set_owner: change the owner of a conversation, with an audit entry.
-- KEYS  root of the conversation
-- ARGV  id_prefix:text of the request  time:text now, UTC with Z  actor:json canonical
--       reason:json from whom to whom, canonical  rights:json of a person, for `_rights.lua`; "" none  owner:text
--       before:text the owner that the actor has seen; "" none
-- Returns  "done"(state:log_state) | "other"(state:log_state): it has another owner by now
--          | "changed"(state:log_state): the actor's right has changed | missing: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds the owner and the request that set it
-- Log  not guarded: neither owner nor audit is in the log
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
