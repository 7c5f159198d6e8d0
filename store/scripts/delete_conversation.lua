-- delete_conversation: delete a conversation with all its keys except its audit; memory is freed in the background.
-- Pending actions are audited as deleted. Unfinished copies into its id end.
-- KEYS  root of the conversation
-- ARGV  deletion:text id, one per request  utc:text now, with Z  actor:json canonical
--       audit_seconds:int for which the audit is kept  wanted:text required revision, "" any
-- Returns  "deleted"(revision:int is_audited:flag) | "changed": it has another revision, and stays
--          | "gone"(revision:int is_audited:flag): another request deleted it within the last minute
--          | missing: no such conversation
-- Cost  O(k): k keys of the conversation: one per (kind, source) pair and text chunk, plus ten
-- Idempotent  by deletion id, for a minute: a repeat returns "deleted" and changes nothing
-- Log  not guarded: a cold conversation is deleted, too
-- include: _actions.lua
-- include: _copies.lua
-- include: _keys.lua
local state = redis.call('HMGET', root, 'text_chunk', 'revision', 'execution_status')
if not state[1] then
  local id, revision = string.match(redis.call('GET', root .. ':deleted') or '', '^(%S+) (%S+)$')
  return id and {id == deletion and 'deleted' or 'gone', revision, redis.call('EXISTS', root .. ':audit')}
end
if wanted ~= '' and state[2] ~= wanted then return 'changed' end
local waiting = state[3] == 'waiting_for_confirmation' and unreleased(open_actions()) or {}
if #waiting > 0 then write_audit('deleted', waiting, actor, '""', utc) end
redis.call('EXPIRE', root .. ':audit', audit_seconds)
for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do redis.call('UNLINK', root .. ':at:' .. pair) end
for number = 0, tonumber(state[1]) do redis.call('UNLINK', root .. ':text:' .. number) end
for _, part in ipairs(KEYS_THAT_END) do redis.call('UNLINK', root .. part) end
end_copies()
redis.call('SET', root .. ':deleted', deletion .. ' ' .. state[2], 'EX', 60)
redis.call('PUBLISH', root .. ':signal', '0')
return {'deleted', state[2], redis.call('EXISTS', root .. ':audit')}
