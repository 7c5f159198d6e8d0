-- create_conversation: create a conversation unless the id is taken, with its first message when there is one.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 incarnation, one per request   6 message id ("" none)   7 "KIND:SOURCE" escaped   8 bytes   9 text record
--       10 "CLAIM TOKEN" that its agent is expected to make ("" none)   11 sealed body that started its agent ("" none)
--       12 id of the start task that makes it ("" none)   13 words of secrets, twice their number   then name, sealed value, … of each secret
--       then the fields of the hash: name, value, …
-- Returns  {"created" | "exists", revision, execution_status, created_at, updated_at, groups, title, whether approvals matter}
--          | false: that start task has ended
-- Cost  O(1)
-- Idempotent  by incarnation: a repeat of the call that created returns "created" and writes nothing
-- Log  not guarded: it writes only where no conversation is
-- Brings  bytes
-- include: _message.lua
-- include: _echoes.lua
local incarnation = redis.call('HGET', root, 'incarnation')
if incarnation then
  open_log(ARGV[1])
  return close_log(incarnation == ARGV[5] and 'created' or 'exists', ARGV[4])
end

if redis.call('EXISTS', root .. ':ended:' .. ARGV[12]) == 1 then return false end
redis.call('PERSIST', root .. ':audit') -- that of an earlier conversation of this id goes on
local words = tonumber(ARGV[13])
redis.call('HSET', root, 'incarnation', ARGV[5], unpack(ARGV, 14 + words))
if words > 0 then redis.call('HSET', root .. ':secrets', unpack(ARGV, 14, 13 + words)) end
if ARGV[11] ~= '' then redis.call('SET', root .. ':start', ARGV[11]) end
if ARGV[10] ~= '' then
  local claim, token = string.match(ARGV[10], '^(.*) (%S+)$')
  expect(claim, token, ARGV[3])
end
open_log(ARGV[1])
if ARGV[6] ~= '' then
  append_message({iso = ARGV[2], score = ARGV[3]}, ARGV[6], ARGV[7], ARGV[8], ARGV[9], true, {})
end
return close_log('created', ARGV[4])
