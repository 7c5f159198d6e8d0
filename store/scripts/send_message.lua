-- send_message: append a user's message. It never approves: what waits for an answer is rejected first.
-- A finished, stuck or waiting conversation becomes idle; with run, any that does not run becomes running.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per message   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 message id   6 "KIND:SOURCE" escaped   7 bytes   8 text record   9 "1" to run, else "0"
--       10 reason of the rejection as JSON
-- Returns  seq of the last event | false: no such conversation
-- Cost  O(p log n): p pending actions, n events of the conversation
-- Idempotent  by message id
-- include: _log.lua
-- include: _message.lua
if not open_log(ARGV[1]) then return false end
if redis.call('HEXISTS', root .. ':ids', ARGV[5]) == 0 then
  append_message({iso = ARGV[2], score = ARGV[3]}, ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9] == '1', ARGV[10])
  close_log(ARGV[4])
end
return log.seq
