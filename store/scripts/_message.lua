-- _message: the effect of a user's message on a conversation. Needs _log, _actions, _status.
local function append_message(stamp, id, pair, bytes, text, run, reason)
  local actions = log.status == 'waiting_for_confirmation' and open_actions() or {}
  if #actions > 0 then
    reject_actions(actions, reason, stamp)
  elseif not run and after('message') ~= log.status then
    set_status(after('message'), stamp)
  end
  log.status = after('message')
  append_event(id, pair, stamp.score, bytes, text)
  log.fields.last_user_message_id = id
  if run and after('run') then set_status(after('run'), stamp) end
end
