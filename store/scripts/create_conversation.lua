-- create_conversation: make a conversation unless the id is taken, with its first message when there is one.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 incarnation, one per request   2 id prefix of minted events   3 now, naive UTC text   4 now, µs
--       5 now, UTC text with Z   6 message id ("" none)   7 "KIND:SOURCE" escaped   8 bytes   9 text record
--       then the fields of the hash: name, value, …
-- Returns  "created" | "exists"
-- Cost  O(1)
-- Idempotent  by incarnation: a repeat of the call that created returns "created" and writes nothing
-- include: _log.lua
-- include: _message.lua
local incarnation = redis.call('HGET', root, 'incarnation')
if incarnation then return incarnation == ARGV[1] and 'created' or 'exists' end

redis.call('HSET', root, 'incarnation', ARGV[1], unpack(ARGV, 10))
if ARGV[6] ~= '' then
  open_log(ARGV[2])
  append_message({iso = ARGV[3], score = ARGV[4]}, ARGV[6], ARGV[7], ARGV[8], ARGV[9], true, '""')
  close_log(ARGV[5])
end
return 'created'
