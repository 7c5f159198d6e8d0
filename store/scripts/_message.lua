-- _message: the effect of a user's message on a conversation.
-- include: _status.lua
-- include: _actions.lua
-- by: the sender, as for `decide_alike`. rejected: the actions that it rejects.
local function append_message(stamp, id, pair, bytes, text, run, rejected, by)
  if #rejected > 0 then
    decide_alike(rejected, 'reject', by, stamp)
  elseif not run and after('message') ~= log.status then
    set_status(after('message'), stamp)
  end
  log.status = after('message')
  append_event(id, pair, stamp.score, bytes, text)
  log.fields.last_user_message_id = id
  if run and after('run') then set_status(after('run'), stamp) end
end
