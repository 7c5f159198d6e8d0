-- adopt_fork: rename the keys of a finished copy to those of its conversation, unless that conversation exists.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 fork id, which the copy's keys bear and which is its incarnation   2 now, µs
--       3 number of claims   then "CLAIM TOKEN" of each that its agent is expected to make
--       then fields of the hash: name, value, …
-- Returns  {"adopted" | "exists", revision, execution_status, created_at, updated_at, groups, title, whether approvals matter} | false: the copy has
--          expired, or a deletion of the id has ended it
-- Cost  O(k): k keys of the conversation, one per (kind, source) pair and text chunk beside six
-- Idempotent  by fork id: a repeat finds the copy renamed
-- Log  not guarded: it writes only where no conversation is
-- include: _log.lua
-- include: _echoes.lua
if redis.call('EXISTS', root .. ':ended:' .. ARGV[1]) == 1 then return false end
redis.call('HDEL', root .. ':copies', ARGV[1])
if open_log('') then
  return close_log(redis.call('HGET', root, 'incarnation') == ARGV[1] and 'adopted' or 'exists', '')
end
local aside = ':fork:' .. ARGV[1]
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
local claims = tonumber(ARGV[3])
for i = 4, 3 + claims do
  local claim, token = string.match(ARGV[i], '^(.*) (%S+)$')
  expect(claim, token, ARGV[2])
end
redis.call('HSET', root, unpack(ARGV, 4 + claims))
redis.call('PERSIST', root .. ':audit') -- that of an earlier conversation of this id goes on
open_log('')
return close_log('adopted', '')
