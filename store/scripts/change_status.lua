-- change_status: run, pause or interrupt a conversation, as defined in `_status.lua`.
-- `run` approves the pending actions, so that they can no longer be decided; expired ones are rejected. A `run` of a
-- finished conversation ends at once: nothing is written, and the followers are signalled to send the state, because
-- clients wait for the end of every run.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp  verb:text "run", "pause" or "interrupt"
--       may_decide:flag whether the caller may decide pending actions  actor:json the caller, canonical
--       rights:json of a person, for `_rights.lua`; "" none
--       quorum:json for `_quorum.lua`; "" not read, so nothing is approved
-- Returns  "done"(state:log_state) | "forbidden"(state:log_state): it would approve pending actions
--          | "changed"(state:log_state): the caller's right has changed
--          | "unread"(state:log_state): the quorum data are outdated
--          | "held"(state:log_state): it would approve actions that several people must approve
--          | "refused"(state:log_state): by its status
--          | "unattended"(state:log_state): a run of a detached copy, to which no agent has posted
--          | "external"(state:log_state): its agent runs in a terminal | missing: no such conversation
-- Cost  O(p log n): p pending actions, n events of the conversation
-- Idempotent  by id prefix: a repeat finds its own event
-- Log  needed
-- include: _status.lua
-- include: _quorum.lua
if not open_log(stamp.id_prefix) then return false end
if seq_of(minted_id(1), log.stored) then return close_log('done', stamp.utc) end
if redis.call('HEXISTS', root, 'external') == 1 then return close_log('external', stamp.utc) end
local status = after(verb)
if not status then return close_log('refused', stamp.utc) end

if status ~= log.status then
  if verb == 'run' then
    if redis.call('HEXISTS', root, 'unattended') == 1 then return close_log('unattended', stamp.utc) end
    local open = log.status == 'waiting_for_confirmation' and open_actions() or {}
    local waiting = undecided(open)
    if #waiting > 0 then
      if not may_decide then return close_log('forbidden', stamp.utc) end
      if have_changed(rights) then return close_log('changed', stamp.utc) end
      local due, fresh = split_due(waiting)
      local read = quorum ~= '' and cjson.decode(quorum) or nil
      if is_outdated(read, fresh) then return close_log('unread', stamp.utc) end
      for _, action in ipairs(fresh) do
        if held_by(read, action) then return close_log('held', stamp.utc) end
      end
      choose(due, 'reject', expired(stamp.utc))
      choose(fresh, 'approve', {actor = actor, reason = '""', said = '""', time = stamp.utc})
      audit_chosen()
    end
    local at = not_before(open, stamp)
    local rejected, approved = decisions(open)
    set_status(status, at)
    reject_actions(rejected, at)
    release_actions(approved)
  else
    local kind = verb == 'interrupt' and log.status == 'running' and 'InterruptEvent' or 'PauseEvent'
    local id = next_id()
    append_event(id, kind .. ':user', stamp.score,
      '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"user","kind":"' .. kind .. '"}', '')
    set_status(status, stamp)
  end
elseif verb == 'run' then
  redis.call('PUBLISH', root .. ':signal', 'state')
end
return close_log('done', stamp.utc)
