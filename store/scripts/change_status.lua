-- change_status: run, pause or interrupt a conversation, as `_status.lua` has it.
-- `run` approves the pending actions: they can no longer be decided; those whose deadline has passed are rejected. A `run`
-- of a finished conversation ends at once: nothing is written, and the followers are signalled to send the state, as
-- clients wait for the end of every run.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per request   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 "run" | "pause" | "interrupt"   6 "1": the caller may decide what waits, else "0"   7 the caller as canonical JSON
-- Returns  {"done" | "forbidden": it would accept what waits | the status that refuses, revision, execution_status,
--          created_at, updated_at, groups, title, whether approvals matter} | false: no such conversation
-- Cost  O(p log n): p pending actions, n events of the conversation
-- Idempotent  by id prefix: a repeat finds its own event
-- Log  needed
-- include: _status.lua
-- include: _decisions.lua
if not open_log(ARGV[1]) then return false end
if seq_of(minted_id(1), log.stored) then return close_log('done', ARGV[4]) end
local status = after(ARGV[5])
if not status then return close_log(log.status, ARGV[4]) end

if status ~= log.status then
  local stamp = {iso = ARGV[2], score = ARGV[3]}
  if ARGV[5] == 'run' then
    local open = log.status == 'waiting_for_confirmation' and open_actions() or {}
    local waiting = undecided(open)
    if #waiting > 0 then
      if ARGV[6] ~= '1' then return close_log('forbidden', ARGV[4]) end
      local due, fresh = split_due(waiting)
      choose(due, 'reject', expired(ARGV[4]))
      choose(fresh, 'approve', {actor = ARGV[7], reason = '""', said = '""', time = ARGV[4]})
      audit_chosen()
    end
    stamp = not_before(open, stamp)
    local rejected, approved = decisions(open)
    set_status(status, stamp)
    reject_actions(rejected, stamp)
    release_actions(approved)
  else
    local kind = ARGV[5] == 'interrupt' and log.status == 'running' and 'InterruptEvent' or 'PauseEvent'
    local id = next_id()
    append_event(id, kind .. ':user', stamp.score,
      '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"user","kind":"' .. kind .. '"}', '')
    set_status(status, stamp)
  end
elseif ARGV[5] == 'run' then
  redis.call('PUBLISH', root .. ':signal', 'state')
end
return close_log('done', ARGV[4])
