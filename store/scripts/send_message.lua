-- send_message: append a user's message. It never approves: the pending actions are rejected first, and so is what was
-- decided and not gone on with.
-- A finished, stuck or waiting conversation becomes idle; with run, any that can run becomes running.
-- A message never bears an earlier time than an action that it rejects: the caller calls again with a later time.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per message   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 message id   6 "KIND:SOURCE" escaped   7 bytes   8 text record   9 "1" to run, else "0"
--       10 reason of the rejection as JSON, canonical too   11 "1": its sender may decide what waits, else "0"
--       12 its sender as canonical JSON   13 most bytes of the log
-- Returns  {"sent" | "early" | "forbidden": it would reject what waits | "too_long", revision, execution_status, created_at, updated_at,
--          groups, title, whether approvals matter, the earliest time in µs that the message may bear} | false: no such
--          conversation
-- Cost  O(p log n): p pending actions, n events of the conversation
-- Idempotent  by message id
-- Log  needed
-- Brings  bytes
-- include: _message.lua
if not open_log(ARGV[1]) then return false end
if not seq_of(ARGV[5], log.stored) then
  if log.bytes + #ARGV[7] + #ARGV[8] > tonumber(ARGV[13]) then return close_log('too_long', ARGV[4], ARGV[3]) end
  local stamp = {iso = ARGV[2], score = ARGV[3]}
  local rejected = log.status == 'waiting_for_confirmation' and unreleased(open_actions()) or {}
  if #rejected > 0 then
    if ARGV[11] ~= '1' then return close_log('forbidden', ARGV[4], ARGV[3]) end
    local earliest = not_before(rejected, stamp)
    if earliest ~= stamp then return close_log('early', ARGV[4], earliest.score) end
  end
  local by = {actor = ARGV[12], reason = ARGV[10], said = ARGV[10], time = ARGV[4]}
  append_message(stamp, ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9] == '1', rejected, by)
end
return close_log('sent', ARGV[4], ARGV[3])
