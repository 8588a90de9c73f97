// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

import {EscrowRoles} from "./EscrowRoles.sol";

/// @title The till: every token that comes in is counted, and every token that leaves was somebody's.
/// @dev All six books below are what the contract owes; their sum is never above its token balance as long as
/// the token does not take balances away by itself. Every function that changes state holds the one reentrancy
/// lock, so that a hostile token cannot be credited twice for one transfer.
abstract contract EscrowFunds is EscrowRoles, EIP712, Pausable {
    using SafeERC20 for IERC20;

    uint16 public constant MAX_FEE_BPS = 2_000;
    uint64 public constant MAX_PERIOD_SECONDS = 366 days;
    uint48 internal constant ADMIN_DELAY_SECONDS = 48 hours;
    uint256 internal constant BPS = 10_000;

    IERC20 public immutable token;
    address public immutable feeRecipient;
    uint16 public immutable feeBps;

    /// @notice What each wallet may withdraw or reserve for a job.
    mapping(address account => uint256 amount) public available;
    uint256 public totalAvailable;
    uint256 public totalHeld;
    uint256 public totalPending;
    uint256 public totalStaked;
    uint256 public slashPool;
    uint256 public creditPool;

    mapping(address account => mapping(uint256 word => uint256 bits)) private _usedNonces;

    constructor(Terms memory terms) {
        if (address(terms.token).code.length == 0) revert WrongAsset();
        if (terms.feeRecipient == address(0) || terms.feeRecipient == address(this)) revert NotAllowed();
        if (terms.feeBps > MAX_FEE_BPS) revert FeeTooHigh();
        token = terms.token;
        feeRecipient = terms.feeRecipient;
        feeBps = terms.feeBps;
    }

    /// @notice Pay `amount` in for oneself.
    /// @dev Reverts with ZeroAmount or UnexpectedBalance when the token delivers nothing or too much, with
    /// EnforcedPause while paused.
    function deposit(uint256 amount) external nonReentrant whenNotPaused {
        _deposit(msg.sender, amount);
    }

    /// @notice Pay `amount` in for somebody else.
    /// @dev Reverts as `deposit` does, and with NotAllowed for the zero address.
    function depositFor(address beneficiary, uint256 amount) external nonReentrant whenNotPaused {
        _deposit(beneficiary, amount);
    }

    /// @notice Pay `amount` in, allowed by the caller's own signed permit.
    /// @dev The permit may have been used by somebody who saw it first; what counts is the allowance.
    /// Reverts as `depositFor` does, and as the token does without an allowance.
    function depositWithPermit(
        address beneficiary,
        uint256 amount,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external nonReentrant whenNotPaused {
        _tryPermit(amount, deadline, v, r, s);
        _deposit(beneficiary, amount);
    }

    /// @notice Take `amount` of one's available money out.
    /// @dev Reverts with ZeroAmount, or InsufficientAvailable. Never paused.
    function withdraw(uint256 amount) external nonReentrant {
        _withdraw(msg.sender, amount);
    }

    /// @notice Take `amount` of one's available money out to another address.
    /// @dev Reverts with ZeroAmount, InsufficientAvailable, or NotAllowed for the zero address and this contract.
    /// Never paused.
    function withdrawTo(address to, uint256 amount) external nonReentrant {
        _withdraw(to, amount);
    }

    /// @notice Give up a nonce, so that what was signed with it can no longer be used.
    /// @dev Reverts with NonceUsed.
    function cancelNonce(uint256 nonce) external nonReentrant {
        _useNonce(msg.sender, nonce);
        emit NonceCancelled(msg.sender, nonce);
    }

    /// @notice Whether `account` has used or cancelled `nonce`; holds and delegations share one set.
    function nonceUsed(address account, uint256 nonce) public view returns (bool) {
        return _usedNonces[account][nonce >> 8] & (1 << (nonce & 0xff)) != 0;
    }

    /// @notice All that the contract owes.
    function totalLiabilities() public view returns (uint256) {
        return totalAvailable + totalHeld + totalPending + totalStaked + slashPool + creditPool;
    }

    function _deposit(address beneficiary, uint256 amount) private {
        if (beneficiary == address(0)) revert NotAllowed();
        uint256 received = _receive(amount);
        _credit(beneficiary, received);
        emit Deposited(beneficiary, msg.sender, received);
    }

    function _withdraw(address to, uint256 amount) private {
        if (amount == 0) revert ZeroAmount();
        _debit(msg.sender, amount);
        emit Withdrawn(msg.sender, to, amount);
        _send(to, amount);
    }

    function _credit(address account, uint256 amount) internal {
        available[account] += amount;
        totalAvailable += amount;
    }

    function _debit(address account, uint256 amount) internal {
        if (available[account] < amount) revert InsufficientAvailable();
        available[account] -= amount;
        totalAvailable -= amount;
    }

    /// @dev The difference in balance counts, not the amount asked for. The lock keeps a token that calls back from
    /// being counted twice.
    function _receive(uint256 amount) internal returns (uint256 received) {
        if (amount == 0) revert ZeroAmount();
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(msg.sender, address(this), amount);
        uint256 afterwards = token.balanceOf(address(this));
        if (afterwards <= before || afterwards - before > amount) revert UnexpectedBalance();
        return afterwards - before;
    }

    /// @dev A token that takes more than was sent would be paid from other people's money.
    function _send(address to, uint256 amount) internal {
        if (to == address(0) || to == address(this)) revert NotAllowed();
        uint256 before = token.balanceOf(address(this));
        token.safeTransfer(to, amount);
        if (token.balanceOf(address(this)) + amount < before) revert UnexpectedBalance();
    }

    function _tryPermit(uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) internal {
        try IERC20Permit(address(token)).permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
    }

    function _useNonce(address account, uint256 nonce) internal {
        if (nonceUsed(account, nonce)) revert NonceUsed();
        _usedNonces[account][nonce >> 8] |= 1 << (nonce & 0xff);
    }

    /// @dev Wallets with code are asked themselves (ERC-1271), in a static call.
    function _checkSigner(address signer, bytes32 structHash, bytes calldata signature) internal view {
        if (!SignatureChecker.isValidSignatureNow(signer, _hashTypedDataV4(structHash), signature)) {
            revert BadSignature();
        }
    }

    function _checkPeriod(uint256 period) internal pure {
        if (period > MAX_PERIOD_SECONDS) revert PeriodTooLong();
    }
}
