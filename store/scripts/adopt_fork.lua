-- adopt_fork: rename the keys of a finished copy to those of its conversation, unless that conversation exists.
-- KEYS  root of the conversation
-- ARGV  fork:text id in the copy's keys, which becomes its incarnation  at:micros now
--       start_id:text id of its start task, "" none  start_body:bytes sealed, "" none
--       claims:text[] expected claims of its agent, "CLAIM TOKEN" each  fields:map* of the hash
-- Returns  "adopted" "exists" (state:log_state)
--          | missing: the copy has expired, or was ended by a deletion of the id or with its start task
-- Cost  O(k): k keys of the conversation: one per (kind, source) pair and text chunk, plus six
-- Idempotent  by fork id: a repeat finds the copy renamed
-- Log  not guarded: it writes only if there is no conversation
-- include: _log.lua
-- include: _echoes.lua
for _, id in ipairs({fork, start_id}) do
  if redis.call('EXISTS', root .. ':ended:' .. id) == 1 then return false end
end
redis.call('HDEL', root .. ':copies', fork)
if open_log('') then
  return close_log(redis.call('HGET', root, 'incarnation') == fork and 'adopted' or 'exists', '')
end
local aside = ':fork:' .. fork
if redis.call('EXISTS', root .. aside) == 0 then return false end
local parts = {':log', ':ids', ':seqs', ':pairs', ':peaks'}
for _, pair in ipairs(redis.call('SMEMBERS', root .. aside .. ':pairs')) do parts[#parts + 1] = ':at:' .. pair end
for chunk = 0, tonumber(redis.call('HGET', root .. aside, 'text_chunk')) do parts[#parts + 1] = ':text:' .. chunk end
parts[#parts + 1] = ''
for _, part in ipairs(parts) do
  if redis.call('EXISTS', root .. aside .. part) == 1 then
    redis.call('RENAME', root .. aside .. part, root .. part)
    redis.call('PERSIST', root .. part)
  end
end
for _, member in ipairs(claims) do
  local claim, token = string.match(member, '^(.*) (%S+)$')
  expect(claim, token, at)
end
redis.call('HSET', root, unpack(fields))
if start_body ~= '' then redis.call('SET', root .. ':start', start_body) end
redis.call('PERSIST', root .. ':audit') -- the audit of an earlier conversation with this id continues
open_log('')
return close_log('adopted', '')
